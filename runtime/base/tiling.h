// Tiling: the parameters of one task family that its kernel reads; and functions that cut a length into
// tiles. runtime/program/op_table.cc lists the fields that an op uses; the others are 0.
//
// Value type of 32 bytes, stored in the program file as it is. The functions are pure; lengths may be 0.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace sluice {

struct Tiling {
  int32_t m = 0;      // rows of the product, if they are known at compile time (weight gradient)
  int32_t n = 0;      // columns of the output
  int32_t k = 0;      // length of the sum
  int32_t tileM = 0;  // rows of m in one task
  int32_t tileN = 0;  // columns of n in one task
  uint16_t flags = 0;
  Rounding roundA = Rounding::kNone;  // of the factors of a product
  Rounding roundB = Rounding::kNone;
  float alpha = 0;  // factor of the product; 0 if the op has none or it is 1: use effectiveAlpha()
  ActivationKind activation = ActivationKind::kSwiglu;  // for ops that have one
  BFloat16 limit = {0};                                 // bound of a clamped activation
  friend bool operator==(const Tiling&, const Tiling&) = default;
};
static_assert(sizeof(Tiling) == 32);

// The factor of a product.
constexpr float effectiveAlpha(const Tiling& tiling) { return tiling.alpha == 0 ? 1 : tiling.alpha; }

// Whether a product rounds a factor.
constexpr bool roundsFactors(const Tiling& tiling) {
  return tiling.roundA != Rounding::kNone || tiling.roundB != Rounding::kNone;
}

// Number of pieces of length `tile` that cover `length`; the last may be shorter.
constexpr int32_t ceilDiv(int32_t length, int32_t tile) { return (length + tile - 1) / tile; }

// Elements [begin, end) of one dimension.
struct TileRange {
  int32_t begin = 0;
  int32_t end = 0;
  constexpr int32_t length() const { return end - begin; }
  friend constexpr bool operator==(const TileRange&, const TileRange&) = default;
};

// Number of tiles that cover `length`; 0 if the tile length is not positive.
constexpr int32_t tileCount(int32_t length, int32_t tile) {
  if (length <= 0 || tile <= 0) return 0;
  return static_cast<int32_t>((int64_t{length} + tile - 1) / tile);
}

// The elements of tile `index`; the last tile may be shorter.
constexpr TileRange tileRange(int32_t length, int32_t tile, int32_t index) {
  const int64_t begin = int64_t{index} * tile;
  const int64_t end = begin + tile;
  return {static_cast<int32_t>(begin < length ? begin : length),
          static_cast<int32_t>(end < length ? end : length)};
}

// The tile length that cuts `length` into the fewest tiles of at most `maxTile` (rounded down to a multiple
// of `unit`, but at least one unit), as evenly as multiples of `unit` allow: 768 by 512 gives 384, not 512
// and 256.
constexpr int32_t equalTile(int32_t length, int32_t maxTile, int32_t unit) {
  if (unit < 1) unit = 1;
  const int64_t largest = maxTile < unit ? unit : maxTile / unit * unit;
  if (length <= 0) return unit;
  const int64_t count = (length + largest - 1) / largest;
  const int64_t even = (length + count - 1) / count;
  return static_cast<int32_t>((even + unit - 1) / unit * unit);
}

}  // namespace sluice
