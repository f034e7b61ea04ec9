// What rounding of a product's factor means, one number at a time, in double precision.
#pragma once

#include <cstdint>

#include "runtime/base/enums.h"

namespace sluice::ops {

// A factor: number i of the sum of its j-th row or column is data[i * sumStride + j * stride].
struct FactorView {
  double* data;
  int64_t sum;  // length
  int64_t sumStride;
  int64_t count;  // of rows or columns
  int64_t stride;
};

// Rounds the numbers, blocks beginning at the first one. Subnormal bf16 numbers count as 0. `amax`: of scaled
// ones.
void roundReference(const FactorView& factor, Rounding rounding, double amax = 0);

// What numbers of the 8-bit float are multiplied by if they are scaled; 1 for others.
double roundingUnit(Rounding rounding, double amax);

// Multiplies number i of each sum by scale[i], and rounds it to a bf16 number times `unit`.
void scaleReference(const FactorView& factor, const float* scale, double unit);

}  // namespace sluice::ops
