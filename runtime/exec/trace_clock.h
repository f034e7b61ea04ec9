// The clock of a recording: ticks that are cheap to read, turned into nanoseconds afterwards.
//
// Ticks are counts of the processor's time-stamp counter if the system itself uses it as its clock, which
// means that it is steady and equal on all cores; else they are nanoseconds of CLOCK_MONOTONIC. A value type;
// any thread may read it.
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

  // Both clocks at the same moment.
  struct Anchor {
    int64_t ticks = 0;
    int64_t nanoseconds = 0;
  };
  Anchor anchor() const { return {ticks(), monotonicNanoseconds()}; }

 private:
  bool isCounter_ = false;
};

// The time of `ticks`, on the line through the anchors. Later ticks never give an earlier time.
int64_t toNanoseconds(int64_t ticks, const TraceClock::Anchor& from, const TraceClock::Anchor& to);

}  // namespace sluice
