// Cores: what of this machine the workers of a process may use.
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
  // Who started this process left it fewer than it has itself, as launchers do which give each rank its own.
  bool areOwn = false;
};

// Those that the calling thread may run on, after machine, container and affinity (taskset, numactl, mpirun
// --bind-to). Never none.
Cores usableCores();

// Of hwloc's topology, those in `allowed`.
Cores coresIn(hwloc_topology* topology, const hwloc_bitmap_s* allowed);

// A help, not a promise: where the machine refuses, the thread stays as it is.
void bindThread(std::thread& thread, int unit);

}  // namespace sluice
