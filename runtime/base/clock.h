// The clock for time limits and measurements.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/expected.h"

namespace sluice {

// CLOCK_MONOTONIC in nanoseconds.
int64_t monotonicNanoseconds();

// A name that no clock of another machine has, nor this machine's after its next start: of what
// monotonicNanoseconds() reads. Empty where the system has none.
std::string nameOfClock();

// Checks that a wait can have this limit: more than 0. Infinity means no limit; NaN is an error.
Status checkTimeLimit(double seconds);

// A limit in nanoseconds, or 0 if checkTimeLimit() refuses it. At most 146 years, so that the clock's time
// plus a limit does not overflow.
int64_t limitNanoseconds(double seconds);

}  // namespace sluice
