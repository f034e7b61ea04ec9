// Rows of bf16 to codes, in loops that compilers vectorise. Internal linkage: see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"
#include "ops/cpu/bits.h"

namespace sluice::ops {
namespace {

// The bits of the largest magnitude; NaNs are above infinity, and that above all numbers.
inline uint16_t largestMagnitude(const BFloat16* a, int32_t n) {
  uint16_t most = 0;
  for (int32_t j = 0; j < n; ++j) {
    const auto magnitude = static_cast<uint16_t>(a[j].bits & 0x7fff);
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

inline void quantizeRow(const BFloat16* __restrict a, int32_t n, float factor, int8_t* __restrict codes) {
  // adding it leaves the nearest whole number, ties to even, in the lowest bits
  constexpr float kRounder = 0x1.8p23F;
  for (int32_t j = 0; j < n; ++j) {
    const float rounded = widenBf16(a[j].bits) * factor + kRounder;
    codes[j] = static_cast<int8_t>(__builtin_bit_cast(int32_t, rounded));
  }
}

inline void quantizeLoop(const QuantizeArgs& args) {
  constexpr uint16_t kInfinity = 0x7f80;
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const a = args.a + r * args.lda;
    int8_t* const codes = args.codes + r * args.ldCodes;
    const uint16_t most = largestMagnitude(a, args.n);
    const float amax = widenBf16(most);
    if (most < kInfinity && amax >= kLeastQuantised) {
      quantizeRow(a, args.n, 127 / amax, codes);
      args.scale[r] = amax / 127;
      continue;
    }
    __builtin_memset(codes, 0, static_cast<size_t>(args.n > 0 ? args.n : 0));
    args.scale[r] = most < kInfinity ? 1 : __builtin_nanf("");
  }
}

}  // namespace
}  // namespace sluice::ops
