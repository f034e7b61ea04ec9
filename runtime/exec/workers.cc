#include "runtime/exec/workers.h"

#include <hwloc.h>

#include <memory>

namespace sluice {
namespace {

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, void (*)(hwloc_topology_t)>;

Topology loadTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  if (hwloc_topology_load(topology) != 0) {
    hwloc_topology_destroy(topology);
    return {nullptr, hwloc_topology_destroy};
  }
  return {topology, hwloc_topology_destroy};
}

using UnitSet = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, void (*)(hwloc_bitmap_t)>;

// The units that workers are bound to, in order: those that the caller may run on, so that ranks which were
// given cores of their own stay there, or the machine's where these are too few.
UnitSet unitsFor(hwloc_topology_t topology, int count) {
  UnitSet own(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (!own) return own;
  if (hwloc_get_cpubind(topology, own.get(), HWLOC_CPUBIND_THREAD) != 0 ||
      hwloc_bitmap_weight(own.get()) < count)
    hwloc_bitmap_copy(own.get(), hwloc_topology_get_topology_cpuset(topology));
  return own;
}

// Binding is a help, not a promise: a machine that refuses runs unbound.
void bindThread(hwloc_topology_t topology, hwloc_const_cpuset_t units, std::thread& thread, int number) {
  const hwloc_obj_t object =
      hwloc_get_obj_inside_cpuset_by_type(topology, units, HWLOC_OBJ_PU, static_cast<unsigned>(number));
  if (object) hwloc_set_thread_cpubind(topology, thread.native_handle(), object->cpuset, 0);
}

}  // namespace

int processingUnits() {
  const Topology topology = loadTopology();
  const int units = topology ? hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PU) : 0;
  return units > 0 ? units : 1;
}

Workers::Workers(int count, int firstUnit) {
  const Topology topology = firstUnit >= 0 ? loadTopology() : Topology{nullptr, hwloc_topology_destroy};
  const UnitSet units =
      topology ? unitsFor(topology.get(), firstUnit + count) : UnitSet{nullptr, hwloc_bitmap_free};
  for (int worker = 0; worker < count; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
    if (units) bindThread(topology.get(), units.get(), threads_.back(), firstUnit + worker);
  }
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(int workers, void (*job)(void* context, int worker), void* context) {
  std::unique_lock lock(mutex_);
  job_ = job;
  context_ = context;
  called_ = running_ = workers;
  ++generation_;
  wake_.notify_all();
  done_.wait(lock, [&] { return running_ == 0; });
}

void Workers::work(int worker) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    if (worker >= called_) continue;
    lock.unlock();
    job_(context_, worker);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace sluice
