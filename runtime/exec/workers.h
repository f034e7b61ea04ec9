// Workers: persistent threads of one rank, pinned where the machine has a core for each.
//
// Resource type. run() is called by one thread at a time and allocates nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

class Workers {
 public:
  // Worker i is bound to processing unit firstUnit + i, if firstUnit >= 0 and it exists: of those that the
  // caller may run on, if these are enough, else of the machine.
  Workers(int count, int firstUnit);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return static_cast<int>(threads_.size()); }

  // Calls job(context, worker) on every worker, or on the first `workers`, and returns when all are done.
  void run(void (*job)(void* context, int worker), void* context) { run(count(), job, context); }
  void run(int workers, void (*job)(void* context, int worker), void* context);

 private:
  void work(int worker);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  void (*job_)(void*, int) = nullptr;
  void* context_ = nullptr;
  uint64_t generation_ = 0;
  int called_ = 0;   // workers of this job
  int running_ = 0;  // that are not done
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// Processing units this process may use (hwloc).
int processingUnits();

}  // namespace sluice
