// Cores: the processing units of this machine that the workers of a process may use.
#pragma once

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace sluice {

// A value. Processing units by the system's numbers, the first unit of each core before the second ones,
// because two threads of a core share its multipliers and caches.
struct Cores {
  std::vector<int> units;
  int count = 0;  // cores with at least one unit in `units`
  // The launcher gave this process only some of the launcher's cores, as launchers do that give each rank
  // cores of its own.
  bool areOwn = false;
};

// Reads which cores this machine has, once per process: here, or in usableCores() if nobody called this.
// hwloc does not survive a lack of memory, so call it before other threads can exhaust memory. Throws
// std::bad_alloc if there is too little.
void readMachine();

// The units on which the calling thread may run, as limited by machine, container and affinity (taskset,
// numactl, mpirun --bind-to). Never empty.
Cores usableCores();

// The place of a rank among the ranks of its machine.
struct LocalPlace {
  int rank = 0, ranks = 1;
  bool isProcess = true;  // false: the ranks are threads of one process and share its cores
};

// The part of `cores` that a rank uses. Where ranks share cores, each prefers different ones.
struct CoreShare {
  int threads = 1;
  std::vector<int> units;  // the preferred ones first; empty if there are too few for the threads of all
};

// `threads`: the number of threads, or 0 for one per core of the rank's part.
inline CoreShare computeShare(Cores cores, const LocalPlace& place, int threads) {
  const bool shared = !cores.areOwn || !place.isProcess;
  const int ranks = shared ? place.ranks : 1;
  if (threads <= 0) threads = std::max(1, cores.count / ranks);
  if (static_cast<size_t>(threads) * static_cast<size_t>(ranks) > cores.units.size()) return {threads, {}};
  if (shared) std::ranges::rotate(cores.units, cores.units.begin() + place.rank * threads);
  return {threads, std::move(cores.units)};
}

// The cores of hwloc's topology that are in `allowed`.
Cores coresIn(hwloc_topology* topology, const hwloc_bitmap_s* allowed);

// Best effort: if the machine refuses, the thread stays unbound.
void bindThread(std::thread& thread, int unit);

}  // namespace sluice
