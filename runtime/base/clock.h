// The clock of limits and figures.
#pragma once

#include <cstdint>

#include "runtime/base/expected.h"

namespace sluice {

// CLOCK_MONOTONIC in nanoseconds.
int64_t monotonicNanoseconds();

// That a wait can have the limit: more than 0. Infinity is none; NaN is an error.
Status checkTimeLimit(double seconds);

// A limit in nanoseconds, 0 where checkTimeLimit() refuses it. At most 146 years: a time of the clock plus a
// limit is a time.
int64_t limitNanoseconds(double seconds);

}  // namespace sluice
