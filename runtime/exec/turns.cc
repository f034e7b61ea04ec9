#include "runtime/exec/turns.h"

namespace sluice {

uint64_t Turns::take() {
  std::lock_guard lock(mutex_);
  return next_++;
}

void Turns::await(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (now_ == ticket) return;
  ++waiting_;
  passed_.wait(lock, [&] { return now_ == ticket; });
  --waiting_;
}

void Turns::pass() {
  std::lock_guard lock(mutex_);
  ++now_;
  if (waiting_ > 0) passed_.notify_all();
}

}  // namespace sluice
