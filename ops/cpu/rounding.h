// bf16 numbers rounded as runtime/base/rounding.h specifies, to bf16 numbers again, in loops that compilers
// vectorise. Subnormal numbers must be flushed (flush_subnormals.h). Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/decode.h"
#include "ops/cpu/unroll.h"
#include "runtime/base/rounding.h"

namespace sluice::ops {
namespace {

constexpr int32_t kBf16Bias = 127, kBf16Mantissa = 7;
constexpr int32_t kOfLargest = 0x60;  // the mantissa of 1.75 in bf16

// The bits of the largest number of the 8-bit float times 2^e, in bf16.
inline uint16_t largestIn(int32_t e, const RoundingInfo& info) {
  return static_cast<uint16_t>((kBf16Bias + info.largestExponent + e) << kBf16Mantissa | kOfLargest);
}

// How the numbers of one factor are rounded.
struct FactorRounding {
  const RoundingInfo& info;
  RoundingScale scale;
  bool isNone;

  FactorRounding(Rounding rounding, float amax)
      : info(kRoundings[static_cast<int32_t>(rounding)]), isNone(rounding == Rounding::kNone) {
    const bool isKnown = amax >= kLeastAmax && amax <= __FLT_MAX__;
    if (!info.isScaled || !isKnown) return;
    const float largest = widenBf16(largestIn(0, info));
    scale = {largest / amax, amax / largest};
  }
};

// What is known of the magnitudes of a block, as bits: the largest, and one less than the smallest that is
// not 0.
struct Extremes {
  uint16_t most = 0, least = 0xffff;
};

inline uint16_t magnitude(BFloat16 x) { return x.bits & 0x7fff; }
inline uint16_t largerBits(uint16_t a, uint16_t b) { return a > b ? a : b; }
inline uint16_t smallerBits(uint16_t a, uint16_t b) { return a < b ? a : b; }

inline Extremes findExtremes(const BFloat16* __restrict from, int32_t count) {
  uint16_t most = 0, least = 0xffff;
  for (int32_t j = 0; j < count; ++j) {
    most = largerBits(most, magnitude(from[j]));
    least = smallerBits(least, static_cast<uint16_t>(magnitude(from[j]) - 1));
  }
  return {most, least};
}

// The exponent e of the block, limited so that its smallest number, and the largest one, are normal bf16
// numbers.
inline int32_t findExponent(int32_t most, const RoundingInfo& info) {
  constexpr int32_t kMantissa = (1 << kBf16Mantissa) - 1;
  const int32_t exceeds = info.isFloor ? 0 : (most & kMantissa) > kOfLargest;
  const int32_t e = (most >> kBf16Mantissa) - kBf16Bias + exceeds - info.largestExponent;
  const int32_t least = info.mantissaBits - info.leastExponent - kBf16Bias + 1;
  const int32_t largest = kBf16Bias - info.largestExponent;
  return e < least ? least : e > largest ? largest : e;
}

// Not 0 if a number of the block is subnormal in the 8-bit float, or not finite.
inline int32_t isDifficult(const Extremes& block, int32_t e, const RoundingInfo& info) {
  return (block.least + 1 < ((kBf16Bias + info.leastExponent + e) << kBf16Mantissa)) | (block.most >= 0x7f80);
}

// What a number of a block is multiplied by before and after it is rounded.
struct BlockPower {
  float down, up;
};
inline BlockPower findPower(const Extremes& block, int32_t e) {
  if (block.most >= 0x7f80) return {1, __builtin_nanf("")};
  return {__builtin_bit_cast(float, (kBf16Bias - e) << 23), __builtin_bit_cast(float, (kBf16Bias + e) << 23)};
}

// Rounds numbers of blocks whose powers are known.
class NumberRounder {
 public:
  explicit NumberRounder(const RoundingInfo& info)
      : largest_(widenBf16(largestIn(0, info))),
        least_((127 + info.leastExponent) << 23),
        distance_((23 - info.mantissaBits) << 23),
        dropped_(7 - info.mantissaBits) {}

  uint16_t operator()(uint16_t bits, const BlockPower& power) const {
    const float x = widenBf16(bits & 0x7fff) * power.down;
    const float y = x < largest_ ? x : largest_;
    // adding and subtracting 1.5 times the power of two whose last bit is the result's last bit rounds to
    // that bit
    const int32_t exponent = __builtin_bit_cast(int32_t, y) & 0x7f800000;
    const int32_t normal = exponent > least_ ? exponent : least_;
    const float rounder = __builtin_bit_cast(float, (normal + distance_) | 0x400000);
    const float q = y + rounder - rounder;
    return static_cast<uint16_t>((bits & 0x8000) | __builtin_bit_cast(uint32_t, q* power.up) >> 16);
  }

  // The same in a block that is not difficult: bits of the mantissa go, ties to even.
  uint16_t simple(uint16_t bits, uint16_t largest) const {
    const auto x = static_cast<uint16_t>(bits & 0x7fff);
    const auto last = static_cast<uint16_t>(1 << dropped_), half = static_cast<uint16_t>(last / 2);
    const auto even = static_cast<uint16_t>((x & last) == 0 ? 1 : 0);
    const auto rounded =
        static_cast<uint16_t>(static_cast<uint16_t>(x + half - even) & static_cast<uint16_t>(-last));
    return static_cast<uint16_t>((bits & 0x8000) | smallerBits(rounded, largest));
  }

 private:
  float largest_;
  int32_t least_, distance_, dropped_;
};

inline void roundRun(const RoundingInfo& info, const Extremes& block, const BFloat16* __restrict from,
                     int32_t count, BFloat16* __restrict to) {
  const NumberRounder rounder(info);
  const int32_t e = findExponent(block.most, info);
  if (isDifficult(block, e, info)) {
    const BlockPower power = findPower(block, e);
    for (int32_t j = 0; j < count; ++j) to[j].bits = rounder(from[j].bits, power);
  } else {
    const uint16_t largest = largestIn(e, info);
    for (int32_t j = 0; j < count; ++j) to[j].bits = rounder.simple(from[j].bits, largest);
  }
}

// Numbers q(x s).
inline void roundScaled(const FactorRounding& by, const BFloat16* __restrict from, int32_t count,
                        BFloat16* __restrict to) {
  const NumberRounder rounder(by.info);
  for (int32_t j = 0; j < count; ++j) {
    const uint16_t q = rounder(from[j].bits, {by.scale.down, 1});
    const auto finite = static_cast<uint16_t>((from[j].bits & 0x7fff) < 0x7f80 ? 0xffff : 0);
    to[j].bits = static_cast<uint16_t>((q & finite) | (0x7fc0 & ~finite));
  }
}

// A row of numbers along the sum, which begins with a block.
SLUICE_NOT_INLINED inline void roundAlong(const FactorRounding& by, const BFloat16* from, int32_t count,
                                          BFloat16* to) {
  if (by.info.isScaled) return roundScaled(by, from, count, to);
  int32_t at = 0;
  for (; count - at >= kMxBlock; at += kMxBlock)
    roundRun(by.info, findExtremes(from + at, kMxBlock), from + at, kMxBlock, to + at);
  if (at < count) roundRun(by.info, findExtremes(from + at, count - at), from + at, count - at, to + at);
}

// The extremes of at most kMaxDown columns of some rows.
constexpr int32_t kMaxDown = 64;
struct ColumnExtremes {
  uint16_t most[kMaxDown], least[kMaxDown];

  ColumnExtremes(const BFloat16* __restrict from, int64_t ld, int32_t rows, int32_t columns) {
    for (int32_t j = 0; j < columns; ++j) most[j] = 0, least[j] = 0xffff;
    for (int32_t i = 0; i < rows; ++i)
      for (int32_t j = 0; j < columns; ++j) {
        const uint16_t x = magnitude(from[i * ld + j]);
        most[j] = largerBits(most[j], x);
        least[j] = smallerBits(least[j], static_cast<uint16_t>(x - 1));
      }
  }
  Extremes of(int32_t column) const { return {most[column], least[column]}; }
};

// One block of the sum of each of at most kMaxDown columns: `length` rows, at most kMxBlock.
SLUICE_NOT_INLINED inline void roundDown(const FactorRounding& by, const BFloat16* __restrict from,
                                         int64_t ld, int32_t length, int32_t columns, BFloat16* __restrict to,
                                         int64_t ldTo) {
  const RoundingInfo& info = by.info;
  if (info.isScaled) {
    for (int32_t i = 0; i < length; ++i) roundScaled(by, from + i * ld, columns, to + i * ldTo);
    return;
  }
  const NumberRounder rounder(info);
  const ColumnExtremes blocks(from, ld, length, columns);
  uint16_t largest[kMaxDown];
  int32_t difficult = 0;
  for (int32_t j = 0; j < columns; ++j) {
    const int32_t e = findExponent(blocks.most[j], info);
    largest[j] = largestIn(e, info);
    difficult |= isDifficult(blocks.of(j), e, info);
  }
  if (difficult == 0) {
    for (int32_t i = 0; i < length; ++i, from += ld, to += ldTo)
      for (int32_t j = 0; j < columns; ++j) to[j].bits = rounder.simple(from[j].bits, largest[j]);
    return;
  }
  BlockPower power[kMaxDown];
  for (int32_t j = 0; j < columns; ++j)
    power[j] = findPower(blocks.of(j), findExponent(blocks.most[j], info));
  for (int32_t i = 0; i < length; ++i, from += ld, to += ldTo)
    for (int32_t j = 0; j < columns; ++j) to[j].bits = rounder(from[j].bits, power[j]);
}

// A matrix as it lies, whose first number begins a block.
struct Numbers {
  const BFloat16* data;
  int64_t ld;
  int32_t rows, columns;
};

// `rows` x `columns` numbers from `first` on, in squares, which are shorter at the ends of the matrix.
SLUICE_NOT_INLINED inline void roundSquares(const RoundingInfo& info, const Numbers& of, Place first,
                                            int32_t rows, int32_t columns, BFloat16* to, int64_t ldTo) {
  const int32_t endRow = first.row + rows, endColumn = first.column + columns;
  for (int32_t row = first.row; row < endRow;) {
    const int32_t top = row / kMxBlock * kMxBlock, bottom = smaller(top + kMxBlock, of.rows);
    const int32_t lastRow = smaller(bottom, endRow);
    for (int32_t column = first.column; column < endColumn;) {
      const int32_t left = column / kMxBlock * kMxBlock, right = smaller(left + kMxBlock, of.columns);
      const ColumnExtremes square(of.data + top * of.ld + left, of.ld, bottom - top, right - left);
      Extremes extremes;
      for (int32_t j = 0; j < right - left; ++j) {
        extremes.most = largerBits(extremes.most, square.most[j]);
        extremes.least = smallerBits(extremes.least, square.least[j]);
      }
      const int32_t lastColumn = smaller(right, endColumn);
      for (int32_t i = row; i < lastRow; ++i)
        roundRun(info, extremes, of.data + i * of.ld + column, lastColumn - column,
                 to + (i - first.row) * ldTo + column - first.column);
      column = lastColumn;
    }
    row = lastRow;
  }
}

}  // namespace
}  // namespace sluice::ops
