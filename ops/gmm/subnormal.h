// The numbers that products treat as zero: those that are subnormal in bf16 and fp32, as operands and as
// results. Used by the references.
#pragma once

#include <cmath>

namespace sluice::ops {

inline double flushed(double x) { return std::abs(x) < 0x1p-126 ? 0 : x; }

}  // namespace sluice::ops
