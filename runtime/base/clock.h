// The clock of limits and figures.
#pragma once

#include <cstdint>

namespace sluice {

// CLOCK_MONOTONIC in nanoseconds.
int64_t monotonicNanoseconds();

}  // namespace sluice
