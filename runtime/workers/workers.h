// Team: threads that run a job together. Workers: the thread that calls run() and persistent ones, each bound
// to its own processing unit if there are enough.
//
// Resource type. One thread at a time calls run(), which allocates nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/workers/core_claims.h"

namespace sluice {

// Threads that run a job together. One thread at a time uses a team.
class Team {
 public:
  virtual ~Team() = default;

  // Whether a job of the calling thread can have this many threads now. Does not wait.
  virtual bool has(int workers) const = 0;

  // Calls job(context, worker) for every worker from 0 on, all at the same time, and returns true when all
  // are done. False: there were fewer threads than that, and no job was called.
  virtual bool run(int workers, void (*job)(void* context, int worker), void* context) = 0;
};

class Workers final : public Team {
 public:
  // Each worker is bound to one of `units` that no other process has claimed, earlier ones first. If none is
  // left, a worker is not bound and runs wherever the caller may. Error: the system cannot start one of the
  // count - 1 threads; then all are ended.
  static Expected<std::unique_ptr<Workers>> start(int count, std::span<const int> units = {},
                                                  CoreClaims& claims = CoreClaims::ofMachine());
  ~Workers() override;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return count_; }

  bool has(int workers) const override { return workers <= count_; }
  bool run(void (*job)(void* context, int worker), void* context) { return run(count_, job, context); }
  // The calling thread is worker 0: it does not sleep, and is bound to that worker's unit until it returns.
  bool run(int workers, void (*job)(void* context, int worker), void* context) override;

 private:
  Workers(int count, CoreClaims& claims) : count_(count), claims_(claims) {}
  void work(int worker);
  void awaitOthers();

  const int count_;
  CoreClaims& claims_;
  std::vector<int> units_;  // claimed for the workers
  int callersUnit_ = -1;    // the unit of worker 0, or -1
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  void (*job_)(void*, int) = nullptr;
  void* context_ = nullptr;
  uint64_t generation_ = 0;
  int called_ = 0;               // workers of this job
  std::atomic<int> running_{0};  // threads that are not yet done
  bool stop_ = false;
  std::vector<std::thread> threads_;  // of worker 1 on
};

}  // namespace sluice
