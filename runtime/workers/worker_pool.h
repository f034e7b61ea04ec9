// WorkerPool: sets of workers that the steps of a process lease, whichever transport they run over.
//
// A step keeps its workers while it waits for peers, and nothing orders the steps of two groups of ranks:
// process 0 may run a step of group A while process 1 runs one of group B. So a lease never waits for another
// one: it takes an idle set or starts one. Steps in turn share one set; steps at the same time have one each.
//
// Resource type, shared by the devices that need the same workers. The last one ends the threads: as many
// sets as steps ran at the same time, each bound to units of its own where there are enough. A forked child
// makes pools of its own. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/workers/workers.h"

namespace sluice {

class WorkerPool {
 public:
  // The pool of sets of `count` workers that prefer `units` (Workers::start), in the order of whoever asks
  // first. `rank`: of ranks that are threads of one process, so that each has its own pool; else 0.
  static std::shared_ptr<WorkerPool> of(int count, std::span<const int> units, int rank);

  int count() const { return count_; }

  // A leased set is idle again when the lease is destroyed, which must precede the end of the pool. Does not
  // wait, and allocates only where no set is idle. Error: the system cannot start the threads of one.
  struct Return {
    WorkerPool* pool = nullptr;
    void operator()(Workers* workers) const { pool->giveBack(workers); }
  };
  using Lease = std::unique_ptr<Workers, Return>;
  Expected<Lease> lease();

 private:
  WorkerPool(int count, std::span<const int> units, int rank)
      : count_(count), rank_(rank), units_(units.begin(), units.end()) {}
  bool has(int count, std::span<const int> units, int rank) const;
  void giveBack(Workers* workers);

  const int count_, rank_;
  const std::vector<int> units_;
  std::mutex mutex_;
  size_t sets_ = 0;  // idle and leased ones
  std::vector<std::unique_ptr<Workers>> idle_;
};

}  // namespace sluice
