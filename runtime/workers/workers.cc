#include "runtime/workers/workers.h"

#include <fmt/format.h>
#include <sched.h>

#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"
#include "runtime/workers/cores.h"

namespace sluice {
namespace {

// How long the caller polls for the others, whose last tasks end at about the same time as its own: to sleep
// and to be woken takes as long.
constexpr int64_t kPollNanoseconds = 50'000;

// During its lifetime its thread runs on one unit; then again wherever it could before. Best effort, like
// bindThread(), and quick: nothing moves where the thread is on that unit, as it is from the second job on.
class BoundHere {
 public:
  explicit BoundHere(int unit) {
    if (unit < 0 || unit >= CPU_SETSIZE || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(unit, &only);
    isBound_ = sched_setaffinity(0, sizeof only, &only) == 0;
  }
  ~BoundHere() {
    if (isBound_) sched_setaffinity(0, sizeof before_, &before_);
  }
  BoundHere(const BoundHere&) = delete;
  BoundHere& operator=(const BoundHere&) = delete;

 private:
  cpu_set_t before_;
  bool isBound_ = false;
};

}  // namespace

Expected<std::unique_ptr<Workers>> Workers::start(int count, std::span<const int> units, CoreClaims& claims) {
  std::unique_ptr<Workers> workers(new Workers(count, claims));
  std::vector<int> left(units.begin(), units.end());
  for (int worker = 0; worker < count; ++worker) {
    if (worker > 0) {
      auto thread =
          startThread(fmt::format("core-{}", worker), [all = workers.get(), worker] { all->work(worker); });
      if (!thread) return tooFewThreads(worker - 1, count - 1, "the workers of a rank", thread.error());
      workers->threads_.push_back(std::move(*thread));
    }
    const int unit = left.empty() ? -1 : claims.take(left);
    if (unit < 0) continue;
    workers->units_.push_back(unit);
    std::erase(left, unit);
    if (worker > 0)
      bindThread(workers->threads_.back(), unit);
    else
      workers->callersUnit_ = unit;
  }
  return workers;
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const int unit : units_) claims_.release(unit);
}

bool Workers::run(int workers, void (*job)(void* context, int worker), void* context) {
  if (!has(workers)) return false;
  {
    std::lock_guard lock(mutex_);
    job_ = job;
    context_ = context;
    called_ = workers;
    running_ = workers - 1;
    ++generation_;
  }
  if (workers > 1) wake_.notify_all();
  const BoundHere bound(callersUnit_);
  job(context, 0);
  awaitOthers();
  return true;
}

void Workers::awaitOthers() {
  for (const int64_t end = monotonicNanoseconds() + kPollNanoseconds; monotonicNanoseconds() < end;)
    if (running_ == 0) break;
  // also where all are done: the last one may still hold the lock
  std::unique_lock lock(mutex_);
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
