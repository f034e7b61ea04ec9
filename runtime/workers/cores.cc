#include "runtime/workers/cores.h"

#include <hwloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, void (*)(hwloc_topology_t)>;
using UnitSet = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, void (*)(hwloc_bitmap_t)>;

UnitSet emptySet() {
  UnitSet set(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (!set) throw std::bad_alloc();
  return set;
}

// Much more than hwloc needs.
void checkMemory() {
  constexpr size_t kPlenty = size_t{8} << 20;
  void* const memory = mmap(nullptr, kPlenty, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  munmap(memory, kPlenty);
}

// The topology of this machine; null if hwloc cannot read it.
hwloc_topology_t machine() {
  static const Topology loaded = [] {
    checkMemory();
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) return Topology(nullptr, hwloc_topology_destroy);
    Topology owned(topology, hwloc_topology_destroy);
    if (hwloc_topology_load(topology) != 0) owned.reset();
    return owned;
  }();
  return loaded.get();
}

// With these variables OpenMP has bound this thread too: its affinity is not the process's.
bool bindsOpenMp() {
  for (const char* name : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"})
    if (const char* value = std::getenv(name); value && std::string_view(value) != "false") return true;
  return false;
}

void addUnits(Cores& cores, hwloc_const_cpuset_t of) {
  unsigned unit = 0;
  hwloc_bitmap_foreach_begin(unit, of) cores.units.push_back(static_cast<int>(unit));
  hwloc_bitmap_foreach_end();
}

}  // namespace

Cores coresIn(hwloc_topology* topology, const hwloc_bitmap_s* allowed) {
  Cores cores;
  const UnitSet left = emptySet(), ofCore = emptySet();
  hwloc_bitmap_and(left.get(), allowed, hwloc_topology_get_topology_cpuset(topology));
  while (!hwloc_bitmap_iszero(left.get())) {
    bool found = false;
    for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));) {
      hwloc_bitmap_and(ofCore.get(), core->cpuset, left.get());
      const int unit = hwloc_bitmap_first(ofCore.get());
      if (unit < 0) continue;
      cores.units.push_back(unit);
      hwloc_bitmap_clr(left.get(), static_cast<unsigned>(unit));
      found = true;
    }
    if (cores.count == 0) cores.count = static_cast<int>(cores.units.size());
    if (!found) break;
  }
  // if the cores of the machine are unknown, every unit counts as a core
  if (cores.count == 0) cores.count = hwloc_bitmap_weight(left.get());
  addUnits(cores, left.get());
  return cores;
}

void readMachine() { machine(); }

Cores usableCores() {
  const hwloc_topology_t topology = machine();
  if (!topology) return {.units = {}, .count = 1};
  const UnitSet own = emptySet(), starter = emptySet();
  const bool known = hwloc_get_cpubind(topology, own.get(), HWLOC_CPUBIND_THREAD) == 0;
  if (!known) hwloc_bitmap_copy(own.get(), hwloc_topology_get_topology_cpuset(topology));
  const bool startersKnown = hwloc_get_proc_cpubind(topology, getppid(), starter.get(), 0) == 0;
  if (startersKnown && hwloc_bitmap_weight(own.get()) == 1 && bindsOpenMp())
    hwloc_bitmap_copy(own.get(), starter.get());
  Cores cores = coresIn(topology, own.get());
  cores.areOwn = known && startersKnown && hwloc_bitmap_isincluded(own.get(), starter.get()) &&
                 !hwloc_bitmap_isequal(own.get(), starter.get());
  if (cores.count == 0) cores.count = 1;
  return cores;
}

void bindThread(std::thread& thread, int unit) {
  const UnitSet only = emptySet();
  if (!machine() || hwloc_bitmap_only(only.get(), static_cast<unsigned>(unit)) != 0) return;
  hwloc_set_thread_cpubind(machine(), thread.native_handle(), only.get(), 0);
}

}  // namespace sluice
