// Codes of E4M3, as they are or in blocks down columns or along rows, to bf16 numbers, exactly, in loops that
// compilers vectorise. Subnormal numbers must be flushed (flush_subnormals.h). Internal linkage: see
// blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/rounding.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Calls use(j, power) for columns `column` + j of the operand, in the block from `row` on, of `rows` rows in
// all.
template <class T, class Use>
void forScales(const CodeScalesOf<T>& of, int32_t row, int32_t rows, int32_t column, int32_t columns,
               const Use& use) {
  column += of.firstColumn;
  if (row + kMxBlock > rows) {
    for (int32_t j = 0; j < columns; ++j) use(j, of.ends[column + j]);
    return;
  }
  const int32_t width = of.columns / kMxBlock;
  T* line = of.scales + (row + column / width) * of.ld;
  int32_t at = column % width;
  for (int32_t j = 0; j < columns; ++j) {
    use(j, line[at]);
    if (++at == width) at = 0, line += of.ld;
  }
}

constexpr uint8_t kE4m3Nan = 0x7f;

// What is subtracted from the bits of a power to give the offset of decodeNormal().
constexpr uint16_t kLeastPower = 7 << 7;

// The code must not be NaN.
inline uint16_t decodeE4m3(uint8_t code, float power) {
  const int32_t magnitude = code & 0x7f;
  const float normal = __builtin_bit_cast(float, (magnitude << 20) + (120 << 23));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9F;
  const float x = (magnitude < 8 ? subnormal : normal) * power;
  return static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16 | (code & 0x80) << 8);
}

// Whether a code of the row is a NaN, or subnormal, but not 0.
inline bool hasDifficult(const uint8_t* __restrict codes, int32_t columns) {
  uint8_t have = 0;
  for (int32_t j = 0; j < columns; ++j) {
    const auto above = static_cast<uint8_t>((codes[j] & 0x7f) - 1);
    have = static_cast<uint8_t>(have | (above < 7 || above == kE4m3Nan - 1 ? 1 : 0));
  }
  return have != 0;
}

// Decodes a row of codes that are normal or 0, times finite powers. `offset` has the bits of each column's
// power, less the bits of the least exponent.
inline void decodeNormal(const uint8_t* __restrict codes, const uint16_t* __restrict offset, int32_t columns,
                         BFloat16* __restrict to) {
  for (int32_t j = 0; j < columns; ++j) {
    const uint16_t code = codes[j];
    const auto magnitude = static_cast<uint16_t>(code & 0x7f);
    const auto sign = static_cast<uint16_t>((code & 0x80) << 8);
    const auto normal = static_cast<uint16_t>(static_cast<uint16_t>(magnitude << 4) + offset[j]);
    to[j].bits = static_cast<uint16_t>(sign | (magnitude == 0 ? uint16_t{0} : normal));
  }
}

// Numbers q(x s) from their codes.
inline void decodeScaled(const uint8_t* __restrict codes, int64_t ld, int32_t rows, int32_t columns,
                         BFloat16* __restrict to, int64_t ldTo) {
  constexpr uint16_t kOffset = (127 - 7) << 7;  // the biases of both exponents differ by so much
  uint16_t offset[kMaxDown];
  for (uint16_t& each : offset) each = kOffset;
  for (int32_t i = 0; i < rows; ++i, codes += ld, to += ldTo)
    if (!hasDifficult(codes, columns))
      decodeNormal(codes, offset, columns, to);
    else
      for (int32_t j = 0; j < columns; ++j)
        to[j].bits = (codes[j] & 0x7f) == kE4m3Nan ? uint16_t{0x7fc0} : decodeE4m3(codes[j], 1);
}

// `count` codes of a row, in blocks along it: a multiple of kMxBlock.
inline void decodeAlong(const uint8_t* __restrict codes, const BFloat16* __restrict powers, int32_t count,
                        BFloat16* __restrict to) {
  for (int32_t at = 0; at < count; at += kMxBlock, codes += kMxBlock, to += kMxBlock) {
    const uint16_t power = powers[at / kMxBlock].bits;
    if (power < 0x7f80 && !hasDifficult(codes, kMxBlock)) {
      uint16_t offset[kMxBlock];
      for (uint16_t& each : offset) each = static_cast<uint16_t>(power - kLeastPower);
      decodeNormal(codes, offset, kMxBlock, to);
    } else {
      for (int32_t j = 0; j < kMxBlock; ++j) to[j].bits = decodeE4m3(codes[j], widenBf16(power));
    }
  }
}

// One block of each of at most kMaxDown columns: `length` rows from `row` on, of `rows` in all.
inline void decodeDown(const uint8_t* codes, int64_t ld, const CodeScales& scales, int32_t row, int32_t rows,
                       int32_t column, int32_t length, int32_t columns, BFloat16* to, int64_t ldTo) {
  uint16_t power[kMaxDown], offset[kMaxDown];
  bool areFinite = true;
  forScales(scales, row, rows, column, columns, [&](int32_t j, BFloat16 scale) {
    power[j] = scale.bits;
    offset[j] = static_cast<uint16_t>(scale.bits - kLeastPower);
    areFinite = areFinite && scale.bits < 0x7f80;
  });
  for (int32_t i = 0; i < length; ++i, codes += ld, to += ldTo)
    if (areFinite && !hasDifficult(codes, columns))
      decodeNormal(codes, offset, columns, to);
    else
      for (int32_t j = 0; j < columns; ++j) to[j].bits = decodeE4m3(codes[j], widenBf16(power[j]));
}

}  // namespace
}  // namespace sluice::ops
