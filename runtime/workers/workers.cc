#include "runtime/workers/workers.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/threads.h"
#include "runtime/workers/cores.h"

namespace sluice {

Expected<std::unique_ptr<Workers>> Workers::start(int count, std::span<const int> units, CoreClaims& claims) {
  std::unique_ptr<Workers> workers(new Workers(claims));
  workers->threads_.reserve(static_cast<size_t>(count));
  std::vector<int> left(units.begin(), units.end());
  for (int worker = 0; worker < count; ++worker) {
    auto thread =
        startThread(fmt::format("core-{}", worker), [all = workers.get(), worker] { all->work(worker); });
    if (!thread) return tooFewThreads(worker, count, "the workers of a rank", thread.error());
    workers->threads_.push_back(std::move(*thread));
    const int unit = left.empty() ? -1 : claims.take(left);
    if (unit < 0) continue;
    workers->units_.push_back(unit);
    std::erase(left, unit);
    bindThread(workers->threads_.back(), unit);
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
  std::unique_lock lock(mutex_);
  job_ = job;
  context_ = context;
  called_ = running_ = workers;
  ++generation_;
  wake_.notify_all();
  done_.wait(lock, [&] { return running_ == 0; });
  return true;
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
