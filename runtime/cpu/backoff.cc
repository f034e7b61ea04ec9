#include "runtime/cpu/backoff.h"

#include <sched.h>

#include <algorithm>

#include "runtime/base/clock.h"

namespace sluice {
namespace {

// One poll takes about a microsecond. If ranks share cores, more spinning would keep the core from the thread
// that should signal.
constexpr int kSpinLooks = 32;
constexpr int kYieldLooks = 40;
constexpr int64_t kLongestPark = 100'000'000;  // ns; an abort is noticed after this time at the latest
constexpr int64_t kMaxGrace = 100'000'000;     // ns per segment

}  // namespace

void Backoff::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool Backoff::wait(uint32_t epoch, int32_t segment) {
  ++looks_;
  if (looks_ == 1) deadline_ = monotonicNanoseconds() + timeout_;
  if (looks_ <= kSpinLooks) {
    pause();
    return true;
  }
  if (looks_ <= kYieldLooks) {
    sched_yield();
    return true;
  }
  if (!attention_) {
    // from here on rings wake this thread; the next poll finds earlier signals
    attention_.emplace(doorbell_);
    return true;
  }
  const int64_t grace = segment * std::min(timeout_ / 10, kMaxGrace);
  const int64_t left = deadline_ + grace - monotonicNanoseconds();
  if (left <= 0) return false;
  doorbell_.park(epoch, std::min(left, kLongestPark));
  return true;
}

}  // namespace sluice
