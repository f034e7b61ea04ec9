// The tiling of gmm, the grouped product c[rows, n] = a[rows, k] * b: a task computes all rows of its slot
// for one range of columns.
//
// Tiling fields: n columns of the output, k length of the sum, tileN columns of one task, alpha the
// factor of the product, flags bit 0 set where the weight lies transposed ([n, k]). There are ceil(n / tileN)
// tiles; tile t covers the columns [t * tileN, min((t + 1) * tileN, n)).
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

inline constexpr uint32_t kGmmTransposedWeight = 1;

constexpr bool gmmTransposed(const Tiling& tiling) { return (tiling.flags & kGmmTransposedWeight) != 0; }

constexpr int32_t gmmTiles(const Tiling& tiling) { return tileCount(tiling.n, tiling.tileN); }

constexpr TileRange gmmTileColumns(const Tiling& tiling, int32_t tile) {
  return tileRange(tiling.n, tiling.tileN, tile);
}

}  // namespace sluice::ops
