// Rows of bf16 to codes, in loops that compilers vectorise. Internal linkage: see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Number j of a row.
struct PlainRow {
  const BFloat16* a;
  float at(int32_t j) const { return widenBf16(a[j].bits); }
};
struct ScaledRow {
  const BFloat16* a;
  const float* columnScale;
  float at(int32_t j) const { return widenBf16(a[j].bits) * columnScale[j]; }
};

// The bits of the largest magnitude; NaNs are above infinity, and that above all numbers.
template <class Row>
uint32_t largestMagnitude(const Row row, int32_t n) {
  uint32_t most = 0;
  for (int32_t j = 0; j < n; ++j) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, row.at(j)) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}
// Only the upper 16 bits of bf16 are compared, because the others are 0.
inline uint32_t largestMagnitude(const PlainRow row, int32_t n) {
  uint16_t most = 0;
  for (int32_t j = 0; j < n; ++j) {
    const auto magnitude = static_cast<uint16_t>(row.a[j].bits & 0x7fff);
    most = magnitude > most ? magnitude : most;
  }
  return uint32_t{most} << 16;
}

template <class Row>
void quantizeRow(const Row row, int32_t n, float factor, int8_t* __restrict codes) {
  // adding it leaves the nearest whole number, ties to even, in the lowest bits
  constexpr float kRounder = 0x1.8p23F;
  for (int32_t j = 0; j < n; ++j) {
    const float rounded = row.at(j) * factor + kRounder;
    codes[j] = static_cast<int8_t>(__builtin_bit_cast(int32_t, rounded));
  }
}

// Returns the scale.
template <class Row>
float quantizeOne(const Row row, int32_t n, int8_t* codes) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const uint32_t most = largestMagnitude(row, n);
  const float amax = __builtin_bit_cast(float, most);
  if (most < kInfinity && amax >= kLeastQuantised) {
    quantizeRow(row, n, 127 / amax, codes);
    return amax / 127;
  }
  __builtin_memset(codes, 0, static_cast<size_t>(n > 0 ? n : 0));
  return most < kInfinity ? 1 : __builtin_nanf("");
}

inline void quantizeLoop(const QuantizeArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const a = args.a + r * args.lda;
    int8_t* const codes = args.codes + r * args.ldCodes;
    args.scale[r] = args.columnScale == nullptr ? quantizeOne(PlainRow{a}, args.n, codes)
                                                : quantizeOne(ScaledRow{a, args.columnScale}, args.n, codes);
  }
}

}  // namespace
}  // namespace sluice::ops
