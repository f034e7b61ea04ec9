// How an output is cut into tiles: the arithmetic shared by the tiling.h of every op.
//
// Pure functions of integers; nothing allocates or fails. Lengths may be 0; tile lengths are positive.
#pragma once

#include <cstdint>

#include "runtime/base/tiling.h"

namespace sluice::ops {

// Elements [begin, end) of one dimension.
struct TileRange {
  int32_t begin = 0;
  int32_t end = 0;
  constexpr int32_t length() const { return end - begin; }
  friend constexpr bool operator==(const TileRange&, const TileRange&) = default;
};

// Number of tiles that cover `length`; 0 where the tile length is not positive.
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

// The tile length that cuts `length` into the fewest tiles of at most `maxTile` (taken down to a multiple of
// `unit`, but at least one unit), as evenly as multiples of `unit` allow: 768 by 512 gives 384, not 512 and
// 256.
constexpr int32_t equalTile(int32_t length, int32_t maxTile, int32_t unit) {
  if (unit < 1) unit = 1;
  const int64_t largest = maxTile < unit ? unit : maxTile / unit * unit;
  if (length <= 0) return unit;
  const int64_t count = (length + largest - 1) / largest;
  const int64_t even = (length + count - 1) / count;
  return static_cast<int32_t>((even + unit - 1) / unit * unit);
}

// The factor of a product.
constexpr float alphaOf(const Tiling& tiling) { return tiling.alpha == 0 ? 1 : tiling.alpha; }

}  // namespace sluice::ops
