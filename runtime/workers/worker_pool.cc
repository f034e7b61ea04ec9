#include "runtime/workers/worker_pool.h"

#include <pthread.h>

#include <algorithm>

namespace sluice {
namespace {

struct Pools {
  std::mutex mutex;
  std::vector<std::weak_ptr<WorkerPool>> all;
};

Pools& poolsOfProcess() {
  // never destroyed, because static objects may still make workers
  static Pools& pools = *new Pools;
  // a child has none of the threads; the lock is held over the fork, so that it is free in the child, too
  static const int registered = pthread_atfork([] { pools.mutex.lock(); }, [] { pools.mutex.unlock(); },
                                               [] {
                                                 pools.all.clear();
                                                 pools.mutex.unlock();
                                               });
  static_cast<void>(registered);
  return pools;
}

}  // namespace

std::shared_ptr<WorkerPool> WorkerPool::of(int count, std::span<const int> units, int rank) {
  Pools& pools = poolsOfProcess();
  std::lock_guard lock(pools.mutex);
  std::erase_if(pools.all, [](const auto& pool) { return pool.expired(); });
  for (const auto& known : pools.all)
    if (auto pool = known.lock(); pool && pool->has(count, units, rank)) return pool;
  const std::shared_ptr<WorkerPool> made(new WorkerPool(count, units, rank));
  pools.all.push_back(made);
  return made;
}

// Processes claim units, so a process need not mind which of them it preferred in another group of ranks.
bool WorkerPool::has(int count, std::span<const int> units, int rank) const {
  return count == count_ && rank == rank_ && std::ranges::is_permutation(units, units_);
}

Expected<WorkerPool::Lease> WorkerPool::lease() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    idle_.reserve(sets_ + 1);  // giveBack() allocates nothing
    auto started = Workers::start(count_, units_);
    if (!started) return started.error();
    idle_.push_back(std::move(*started));
    ++sets_;
  }
  Lease lease(idle_.back().release(), {this});
  idle_.pop_back();
  return lease;
}

void WorkerPool::giveBack(Workers* workers) {
  std::lock_guard lock(mutex_);
  idle_.emplace_back(workers);
}

}  // namespace sluice
