// Codes of E4M3 in blocks of rows to bf16 numbers, exactly, in loops that compilers vectorise. Subnormal
// numbers must be flushed (flush_subnormals.h). Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"
#include "ops/cpu/bits.h"
#include "ops/cpu/rounding.h"

namespace sluice::ops {
namespace {

// The power of column `column` of the operand in the whole block from `row` on.
template <class T>
T* scaleAt(const CodeScalesOf<T>& scales, int32_t row, int32_t column) {
  column += scales.firstColumn;
  return scales.scales + (row + column % kMxBlock) * scales.ld + column / kMxBlock;
}

inline uint16_t decodeE4m3(uint8_t code, float power) {
  const int32_t magnitude = code & 0x7f;
  const float normal = __builtin_bit_cast(float, (magnitude << 20) + (120 << 23));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9F;
  const float x = (magnitude < 8 ? subnormal : normal) * power;
  return static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16 | (code & 0x80) << 8);
}

// Not 0 if a code is subnormal, but not 0.
inline uint8_t haveSubnormals(const uint8_t* __restrict codes, int64_t ld, int32_t rows, int32_t columns) {
  uint8_t have = 0;
  for (int32_t i = 0; i < rows; ++i, codes += ld)
    for (int32_t j = 0; j < columns; ++j) {
      const auto above = static_cast<uint8_t>((codes[j] & 0x7f) - 1);
      have = static_cast<uint8_t>(have | (above < 7 ? 1 : 0));
    }
  return have;
}

// One block of each of at most kMostDown columns: `length` rows from `row` on, of `rows` in all.
inline void decodeDown(const uint8_t* __restrict codes, int64_t ld, const CodeScales& scales, int32_t row,
                       int32_t rows, int32_t column, int32_t length, int32_t columns, BFloat16* __restrict to,
                       int64_t ldTo) {
  constexpr uint16_t kExponentOf0 = 7 << 7;
  uint16_t power[kMostDown];
  bool areFinite = true;
  for (int32_t j = 0; j < columns; ++j) {
    power[j] = (row + kMxBlock <= rows ? *scaleAt(scales, row, column + j)
                                       : scales.ends[scales.firstColumn + column + j])
                   .bits;
    areFinite = areFinite && power[j] < 0x7f80;
  }
  if (areFinite && haveSubnormals(codes, ld, length, columns) == 0) {
    for (int32_t i = 0; i < length; ++i, codes += ld, to += ldTo)
      for (int32_t j = 0; j < columns; ++j) {
        const auto magnitude = static_cast<uint16_t>(codes[j] & 0x7f);
        const auto normal = static_cast<uint16_t>((magnitude << 4) + power[j] - kExponentOf0);
        to[j].bits = static_cast<uint16_t>((codes[j] & 0x80) << 8 | (magnitude == 0 ? 0 : normal));
      }
    return;
  }
  for (int32_t i = 0; i < length; ++i, codes += ld, to += ldTo)
    for (int32_t j = 0; j < columns; ++j) to[j].bits = decodeE4m3(codes[j], widenBf16(power[j]));
}

}  // namespace
}  // namespace sluice::ops
