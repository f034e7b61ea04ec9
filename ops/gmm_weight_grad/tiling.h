// The tiling of gmm_weight_grad, c[m, n] = sum over the rows of one expert of a[r, m] * b[r, n], or over
// all tokens of the rank (space once): a task computes one rectangle of the gradient over all of these rows.
//
// Tiling fields: m, n the shape of the gradient, tileM, tileN the rectangle of one task, alpha the
// factor of the sum, flags bit 0 set where it is added to what the gradient holds. There are ceil(m / tileM)
// * ceil(n / tileN) tiles; tile t is at (t / tilesN, t % tilesN) with tilesN = ceil(n / tileN).
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

inline constexpr uint32_t kWeightGradAccumulate = 1;

constexpr bool weightGradAccumulates(const Tiling& tiling) {
  return (tiling.flags & kWeightGradAccumulate) != 0;
}

struct WeightGradTile {
  TileRange m;
  TileRange n;
};

constexpr int32_t weightGradTiles(const Tiling& tiling) {
  return tileCount(tiling.m, tiling.tileM) * tileCount(tiling.n, tiling.tileN);
}

// `tile` is below weightGradTiles(tiling).
constexpr WeightGradTile weightGradTile(const Tiling& tiling, int32_t tile) {
  const int32_t tilesN = tileCount(tiling.n, tiling.tileN);
  return {tileRange(tiling.m, tiling.tileM, tile / tilesN), tileRange(tiling.n, tiling.tileN, tile % tilesN)};
}

}  // namespace sluice::ops
