// Cores: the processing units of this machine that the workers of a process may use.
#pragma once

#include <thread>
#include <vector>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace sluice {

// A value. Processing units by the system's numbers, the first one of each core before the second ones: two
// threads of a core share its multipliers and its caches.
struct Cores {
  std::vector<int> units;
  int count = 0;  // cores that have a unit here
  // The launcher gave this process fewer cores than it has itself, as launchers do that give each rank cores
  // of its own.
  bool areOwn = false;
};

// Reads what cores this machine has, once in a process: here, or in usableCores() where nobody called this.
// hwloc does not survive a lack of memory, so call it before other threads can use up what there is. Throws
// std::bad_alloc where there is too little.
void readMachine();

// Those on which the calling thread may run, by machine, container and affinity (taskset, numactl, mpirun
// --bind-to). Never none.
Cores usableCores();

// A rank among those of its machine.
struct LocalPlace {
  int rank = 0, ranks = 1;
  bool isProcess = true;  // else the ranks are threads of one process and share its cores
};

// The part of `cores` that a rank uses. Where ranks share cores, each prefers different ones.
struct CoreShare {
  int threads = 1;
  std::vector<int> units;  // the preferred ones first; none where there are too few for the threads of all
};

// `threads`: the number of threads, or 0 for as many as the rank's part of the cores.
CoreShare shareOf(Cores cores, const LocalPlace& place, int threads);

// Of hwloc's topology, those in `allowed`.
Cores coresIn(hwloc_topology* topology, const hwloc_bitmap_s* allowed);

// Best effort: where the machine refuses, the thread stays unbound.
void bindThread(std::thread& thread, int unit);

}  // namespace sluice
