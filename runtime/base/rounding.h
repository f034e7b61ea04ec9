// The facts of each Rounding of program.fbs, where q rounds to the nearest number of an 8-bit float, ties to
// even, and cuts at its largest one. The OCP specifications define the formats.
//
// Scaled: numbers x become q(x s) / s with s = largest / amax, where amax is given; quotients and products
// are rounded to fp32. An amax below kLeastAmax, or one that is not finite, gives s = 1. NaN and infinities
// become NaN.
//
// Others: numbers x of a block become q(x / 2^e) 2^e. With amax the largest magnitude of the block, e is
// floor(log2 amax) less the exponent of the largest number, or the least with amax <= largest 2^e; then
// limited so that all results are normal bf16 numbers or 0. A block with NaN or an infinity becomes NaN.
//
// Constant data and pure functions.
#pragma once

#include <cstdint>

#include "runtime/base/enums.h"

namespace sluice {

struct RoundingInfo {
  int32_t mantissaBits;
  int32_t leastExponent;    // of a normal number
  int32_t largestExponent;  // of the largest number, whose mantissa is 1.75
  bool isFloor;
  bool isSquare;
  bool isScaled = false;
};

inline constexpr int32_t kMxBlock = 32;

// By Rounding. In each file its own, because kernel files must share no symbols.
constexpr RoundingInfo kRoundings[] = {
    {},
    {3, -6, 8, false, false},
    {3, -6, 8, true, false},
    {2, -14, 15, false, false},
    {2, -14, 15, true, false},
    {3, -6, 8, false, true},
    {3, -6, 8, true, true},
    {3, -6, 8, false, false, true},
    {2, -14, 15, false, false, true},
};
static_assert(sizeof kRoundings / sizeof kRoundings[0] == static_cast<int32_t>(Rounding::MAX) + 1);

constexpr const RoundingInfo& findInfo(Rounding rounding) {
  return kRoundings[static_cast<int32_t>(rounding)];
}

// Whether rounded numbers have codes of E4M3: the codes of q(x s) if they are scaled, else codes with a power
// of two per block of a column.
constexpr bool isEncodable(Rounding rounding) {
  const RoundingInfo& info = findInfo(rounding);
  return rounding != Rounding::kNone && info.mantissaBits == 3 && !info.isSquare;
}

// Likewise, with a power of two per block.
constexpr bool isEncodableInBlocks(Rounding rounding) {
  return isEncodable(rounding) && !findInfo(rounding).isScaled;
}

inline constexpr float kLeastAmax = 0x1p-110F;  // so that neither s nor 1 / s leaves the normal numbers

// s, and what products of q are multiplied by.
struct RoundingScale {
  float down = 1, up = 1;
};

}  // namespace sluice
