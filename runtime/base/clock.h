// Clocks, for time limits and measurements. Free functions; any thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice {

// CLOCK_MONOTONIC in nanoseconds.
int64_t monotonicNanoseconds();

// A name that no clock of another machine has, nor this machine's after its next start: of what
// monotonicNanoseconds() reads. Empty where the system has none.
std::string nameOfClock();

// Seconds of a clock of POSIX: since an arbitrary time, or of processor time of the process or of this
// thread, which does not count the work of others on its core.
inline double secondsNow(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The median of measurements, the upper one of two in the middle; 0 if there are none.
double computeMedian(std::vector<double> values);

// Checks that a wait can have this limit: more than 0. Infinity means no limit; NaN is an error.
Status checkTimeLimit(double seconds);

// A limit in nanoseconds, or 0 if checkTimeLimit() refuses it. At most 146 years, so that the clock's time
// plus a limit does not overflow.
int64_t limitNanoseconds(double seconds);

}  // namespace sluice
