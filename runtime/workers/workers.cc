#include "runtime/workers/workers.h"

#include "runtime/workers/cores.h"

namespace sluice {

Workers::Workers(int count, std::span<const int> units, CoreClaims& claims) : claims_(claims) {
  std::vector<int> left(units.begin(), units.end());
  for (int worker = 0; worker < count; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
    const int unit = left.empty() ? -1 : claims_.take(left);
    if (unit < 0) continue;
    units_.push_back(unit);
    std::erase(left, unit);
    bindThread(threads_.back(), unit);
  }
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const int unit : units_) claims_.giveBack(unit);
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
