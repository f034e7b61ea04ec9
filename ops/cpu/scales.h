// The scales and zeros of codes as fp32 numbers. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "ops/cpu/bits.h"
#include "ops/cpu/nibbles.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Returns fromF16(bits), in a form that compilers vectorise.
inline float widenF16(uint16_t bits) {
  const int32_t magnitude = bits & 0x7fff;
  const int32_t special = -static_cast<int32_t>(magnitude >= 0x7c00) & (112 << 23);  // infinity or NaN
  const int32_t normal = (magnitude << 13) + (112 << 23) + special;
  const auto subnormal = __builtin_bit_cast(int32_t, static_cast<float>(magnitude) * 0x1p-24F);
  const int32_t isSubnormal = -static_cast<int32_t>(magnitude < 0x400);
  return __builtin_bit_cast(float,
                            (subnormal & isSubnormal) | (normal & ~isSubnormal) | (bits & 0x8000) << 16);
}

// Whether scales are codes themselves, and what they scale E2M1.
inline bool areCodes(const BlockScales& scales) {
  return scales.type == DType::kF8_E8M0 || scales.type == DType::kF8_E4M3;
}

// Returns scale number `at`, which is no code.
inline float scaleAt(const BlockScales& scales, int64_t at) {
  if (scales.type == DType::kF32) return static_cast<const float*>(scales.data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(scales.data)[at];
  return scales.type == DType::kF16 ? widenF16(bits) : widenBf16(bits);
}

// Returns what is added to a code times its scale, if the code `zero` stands for 0.
inline float countedFrom(int8_t zero, float scale) { return -static_cast<float>(zero) * scale; }

// Returns what is added to a code times its scale, which is number `at`, `scale`.
inline float zeroAt(const BlockScales& scales, int64_t at, float scale) {
  if (scales.type == DType::kF32) return static_cast<const float*>(scales.zero)[at];
  return countedFrom(static_cast<const int8_t*>(scales.zero)[at], scale);
}

// to[j] = scale j of `count`, of F16 or BF16.
inline void widenScales(DType type, const uint16_t* __restrict from, int32_t count, float* __restrict to) {
  int32_t j = 0;
  if (type != DType::kF16) {
    for (; j < count; ++j) to[j] = widenBf16(from[j]);
    return;
  }
#if defined(__F16C__)
  for (; j + 8 <= count; j += 8)
    _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j))));
#endif
  for (; j < count; ++j) to[j] = widenF16(from[j]);
}

// Returns the scales from `at` on, in `room` if they do not lie in memory as numbers of fp32.
inline const float* scalesFrom(const BlockScales& scales, int64_t at, int32_t count, float* room) {
  if (scales.type == DType::kF32) return static_cast<const float*>(scales.data) + at;
  widenScales(scales.type, static_cast<const uint16_t*>(scales.data) + at, count, room);
  return room;
}

// Returns what is added to codes times `by`, the scales from `at` on; in `room` under the same condition.
inline const float* zerosFrom(const BlockScales& scales, int64_t at, int32_t count, const float* by,
                              float* room) {
  if (scales.type == DType::kF32) return static_cast<const float*>(scales.zero) + at;
  for (int32_t j = 0; j < count; ++j) room[j] = zeroAt(scales, at + j, by[j]);
  return room;
}

}  // namespace
}  // namespace sluice::ops
