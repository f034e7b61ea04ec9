// The facts of each Rounding of program.fbs: numbers x of a block become q(x / 2^e) 2^e, where q rounds to
// the nearest number of an 8-bit float, ties to even, and cuts at its largest one.
//
// With amax the largest magnitude of the block, e is floor(log2 amax) less the exponent of the largest
// number, or the least with amax <= largest 2^e; then limited so that all results are normal bf16 numbers or
// 0. The formats are those of the OCP 8-bit floating point and microscaling specifications. Constant data.
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
};
static_assert(sizeof kRoundings / sizeof kRoundings[0] == static_cast<int32_t>(Rounding::MAX) + 1);

constexpr const RoundingInfo& infoOf(Rounding rounding) { return kRoundings[static_cast<int32_t>(rounding)]; }

}  // namespace sluice
