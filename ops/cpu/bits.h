// Conversions between bf16 bits and fp32 for files that are compiled for one instruction set: the functions
// of runtime/base/dtype.h with internal linkage (see blocked_product.h for why). Compilers vectorise them in
// loops.
#pragma once

#include <cstdint>

namespace sluice::ops {
namespace {

inline float widenBf16(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

// To nearest even; a NaN stays a quiet NaN.
inline uint16_t roundToBf16(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const uint32_t quiet = bits | 0x400000u;
  return static_cast<uint16_t>(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

}  // namespace
}  // namespace sluice::ops
