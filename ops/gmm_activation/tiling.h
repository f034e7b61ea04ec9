// The tiling of gmm with an activation in the same task, and of gmm with its gradient: a task computes all
// rows of its slot for one range of columns of act, hence for the same columns of gate and of up.
//
// Tiling fields: n = I, the width of gate, of up and of act; k length of the sum, tileN columns of act in one
// task, alpha the factor of the product; flags bits 0, 1 and 16 to 31 as in ops/activation/tiling.h, bit 2
// set where the weight lies transposed. There are ceil(n / tileN) tiles, cut as those of a gmm; gmm with a
// gradient that also sums over the columns has one.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

inline constexpr uint32_t kFusedTransposedWeight = 4;

constexpr bool fusedTransposed(const Tiling& tiling) { return (tiling.flags & kFusedTransposedWeight) != 0; }

constexpr int32_t fusedTiles(const Tiling& tiling) { return tileCount(tiling.n, tiling.tileN); }

constexpr TileRange fusedTileColumns(const Tiling& tiling, int32_t tile) {
  return tileRange(tiling.n, tiling.tileN, tile);
}

}  // namespace sluice::ops
