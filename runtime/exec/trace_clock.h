// The clock of a recording: ticks that are cheap to read, turned into nanoseconds afterwards.
//
// Ticks are the processor's time-stamp counter where the system itself takes that for its clock, hence for
// even and the same on all cores; else they are nanoseconds of CLOCK_MONOTONIC. A value type; read by any
// thread.
#pragma once

#include <cstdint>

#include "runtime/base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace sluice {

class TraceClock {
 public:
  TraceClock();

  int64_t ticks() const {
#if defined(__x86_64__)
    if (isCounter_) return static_cast<int64_t>(__rdtsc());
#endif
    return monotonicNanoseconds();
  }

  // Both clocks at one time.
  struct Anchor {
    int64_t ticks = 0;
    int64_t nanoseconds = 0;
  };
  Anchor anchor() const { return {ticks(), monotonicNanoseconds()}; }

 private:
  bool isCounter_ = false;
};

// The time of `ticks`, on the line through the anchors. Later ticks never have an earlier time.
int64_t nanosecondsOf(int64_t ticks, const TraceClock::Anchor& from, const TraceClock::Anchor& to);

}  // namespace sluice
