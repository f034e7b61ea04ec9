// Blocks of bf16 numbers rounded as runtime/base/rounding.h specifies, to bf16 numbers again, in loops that
// compilers vectorise. Subnormal numbers must be flushed (flush_subnormals.h). A block with a NaN or an
// infinity becomes NaN. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/decode.h"
#include "runtime/base/rounding.h"

namespace sluice::ops {
namespace {

inline const RoundingInfo& factsOf(Rounding rounding) { return kRoundings[static_cast<int32_t>(rounding)]; }

// What a number of a block is multiplied by before and after it is rounded: powers of two.
struct BlockPower {
  float down, up;
};

// `most`: the bits of the largest magnitude.
inline BlockPower powerOf(uint16_t most, const RoundingInfo& info) {
  constexpr int32_t kBias = 127, kMantissaBits = 7, kMantissa = (1 << kMantissaBits) - 1;
  constexpr int32_t kOfLargest = 0x60;  // the mantissa of 1.75
  if (most >= 0x7f80) return {1, __builtin_nanf("")};
  const bool exceeds = !info.isFloor && (most & kMantissa) > kOfLargest;
  const int32_t power = (most >> kMantissaBits) - kBias + (exceeds ? 1 : 0) - info.largestExponent;
  // so that the smallest number, and the largest one, are normal bf16 numbers
  const int32_t least = info.mantissaBits - info.leastExponent - kBias + 1;
  const int32_t largest = kBias - info.largestExponent;
  const int32_t limited = power < least ? least : power > largest ? largest : power;
  return {__builtin_bit_cast(float, static_cast<uint32_t>(kBias - limited) << 23),
          __builtin_bit_cast(float, static_cast<uint32_t>(kBias + limited) << 23)};
}

// Rounds numbers of blocks whose powers are known.
class NumberRounder {
 public:
  explicit NumberRounder(const RoundingInfo& info)
      : largest_(
            __builtin_bit_cast(float, static_cast<uint32_t>(127 + info.largestExponent) << 23 | 0x600000)),
        least_(static_cast<uint32_t>(127 + info.leastExponent) << 23),
        distance_(static_cast<uint32_t>(23 - info.mantissaBits) << 23) {}

  uint16_t operator()(uint16_t bits, const BlockPower& power) const {
    const float x = widenBf16(bits & 0x7fff) * power.down;
    const float y = x < largest_ ? x : largest_;
    // adding and subtracting 1.5 of the power of two whose last bit is that of the result rounds to it
    const uint32_t exponent = __builtin_bit_cast(uint32_t, y) & 0x7f800000;
    const uint32_t normal = exponent > least_ ? exponent : least_;
    const float rounder = __builtin_bit_cast(float, (normal + distance_) | 0x400000);
    const float q = y + rounder - rounder;
    return static_cast<uint16_t>((bits & 0x8000) | __builtin_bit_cast(uint32_t, q* power.up) >> 16);
  }

 private:
  float largest_;
  uint32_t least_, distance_;
};

inline uint16_t magnitude(BFloat16 x) { return x.bits & 0x7fff; }
inline uint16_t largerBits(uint16_t a, uint16_t b) { return a > b ? a : b; }

inline uint16_t largestOf(const BFloat16* __restrict from, int32_t count, uint16_t most = 0) {
  for (int32_t j = 0; j < count; ++j) most = largerBits(most, magnitude(from[j]));
  return most;
}

inline void roundRun(const NumberRounder& rounder, const BFloat16* __restrict from, int32_t count,
                     BlockPower power, BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = rounder(from[j].bits, power);
}

// A row of numbers along the sum, which begins with a block.
inline void roundAlong(const RoundingInfo& info, const BFloat16* from, int32_t count, BFloat16* to) {
  const NumberRounder rounder(info);
  int32_t at = 0;
  for (; count - at >= kMxBlock; at += kMxBlock)
    roundRun(rounder, from + at, kMxBlock, powerOf(largestOf(from + at, kMxBlock), info), to + at);
  if (at < count)
    roundRun(rounder, from + at, count - at, powerOf(largestOf(from + at, count - at), info), to + at);
}

// One block of the sum of each of at most kMostDown columns: `length` rows, at most kMxBlock.
constexpr int32_t kMostDown = 64;
inline void roundDown(const RoundingInfo& info, const BFloat16* __restrict from, int64_t ld, int32_t length,
                      int32_t columns, BFloat16* __restrict to, int64_t ldTo) {
  const NumberRounder rounder(info);
  uint16_t most[kMostDown] = {};
  for (int32_t i = 0; i < length; ++i)
    for (int32_t j = 0; j < columns; ++j) most[j] = largerBits(most[j], magnitude(from[i * ld + j]));
  float down[kMostDown], up[kMostDown];
  for (int32_t j = 0; j < columns; ++j) {
    const BlockPower power = powerOf(most[j], info);
    down[j] = power.down;
    up[j] = power.up;
  }
  for (int32_t i = 0; i < length; ++i)
    for (int32_t j = 0; j < columns; ++j)
      to[i * ldTo + j].bits = rounder(from[i * ld + j].bits, {down[j], up[j]});
}

// A matrix as it lies, whose first number begins a block.
struct Numbers {
  const BFloat16* data;
  int64_t ld;
  int32_t rows, columns;
};

// `rows` x `columns` numbers from `first` on, in squares, which are shorter at the ends of the matrix.
inline void roundSquares(const RoundingInfo& info, const Numbers& of, Place first, int32_t rows,
                         int32_t columns, BFloat16* to, int64_t ldTo) {
  const NumberRounder rounder(info);
  const int32_t endRow = first.row + rows, endColumn = first.column + columns;
  for (int32_t row = first.row; row < endRow;) {
    const int32_t top = row / kMxBlock * kMxBlock, bottom = smaller(top + kMxBlock, of.rows);
    const int32_t lastRow = smaller(bottom, endRow);
    for (int32_t column = first.column; column < endColumn;) {
      const int32_t left = column / kMxBlock * kMxBlock, right = smaller(left + kMxBlock, of.columns);
      uint16_t most = 0;
      for (int32_t i = top; i < bottom; ++i) most = largestOf(of.data + i * of.ld + left, right - left, most);
      const BlockPower power = powerOf(most, info);
      const int32_t lastColumn = smaller(right, endColumn);
      for (int32_t i = row; i < lastRow; ++i)
        roundRun(rounder, of.data + i * of.ld + column, lastColumn - column, power,
                 to + (i - first.row) * ldTo + column - first.column);
      column = lastColumn;
    }
    row = lastRow;
  }
}

}  // namespace
}  // namespace sluice::ops
