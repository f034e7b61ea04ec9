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

// Binding is a help, not a promise: a machine that refuses runs unbound.
void bindThread(hwloc_topology_t topology, std::thread& thread, int unit) {
  const hwloc_obj_t object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, unit);
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
  for (int worker = 0; worker < count; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
    if (topology) bindThread(topology.get(), threads_.back(), firstUnit + worker);
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

void Workers::run(void (*job)(void* context, int worker), void* context) {
  std::unique_lock lock(mutex_);
  job_ = job;
  context_ = context;
  running_ = count();
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
    lock.unlock();
    job_(context_, worker);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace sluice
