// Workers: a set of persistent threads, each bound to its own processing unit if there are enough.
//
// Resource type. One thread at a time calls run(), which allocates nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/workers/core_claims.h"
#include "runtime/workers/team.h"

namespace sluice {

class Workers final : public Team {
 public:
  // Each worker is bound to one of `units` that no other process has claimed, earlier ones first. If none is
  // left, a worker is not bound and runs wherever the caller may. Error: the system cannot start one of them;
  // then all are ended.
  static Expected<std::unique_ptr<Workers>> start(int count, std::span<const int> units = {},
                                                  CoreClaims& claims = CoreClaims::ofMachine());
  ~Workers() override;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return static_cast<int>(threads_.size()); }

  bool has(int workers) const override { return workers <= count(); }
  bool run(void (*job)(void* context, int worker), void* context) { return run(count(), job, context); }
  bool run(int workers, void (*job)(void* context, int worker), void* context) override;

 private:
  explicit Workers(CoreClaims& claims) : claims_(claims) {}
  void work(int worker);

  CoreClaims& claims_;
  std::vector<int> units_;  // claimed for the workers
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  void (*job_)(void*, int) = nullptr;
  void* context_ = nullptr;
  uint64_t generation_ = 0;
  int called_ = 0;   // workers of this job
  int running_ = 0;  // not yet done
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
