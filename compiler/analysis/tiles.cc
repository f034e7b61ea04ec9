#include "compiler/analysis/tiles.h"

#include <algorithm>

#include "ops/activation/tiling.h"
#include "ops/gmm/tiling.h"
#include "ops/gmm_weight_grad/tiling.h"

namespace sluice {

int32_t evenTile(int32_t length, int32_t most) {
  constexpr int32_t kUnit = 16;
  return std::min(ops::equalTile(length, most, std::min(most, kUnit)), length);
}

FamilyShape shapeGmm(int32_t n, int32_t k, bool transposed, const TileSizes& sizes) {
  FamilyShape shape;
  shape.tiling.n = n;
  shape.tiling.k = k;
  shape.tiling.tileN = evenTile(n, sizes.gmmColumns);
  shape.tiling.flags = transposed ? ops::kGmmTransposedWeight : 0;
  shape.tiles = ops::gmmTiles(shape.tiling);
  return shape;
}

FamilyShape shapeWeightGrad(int32_t m, int32_t n, const TileSizes& sizes, bool accumulate) {
  FamilyShape shape;
  shape.tiling.m = m;
  shape.tiling.n = n;
  shape.tiling.tileM = evenTile(m, sizes.weightGradRows);
  shape.tiling.tileN = evenTile(n, sizes.weightGradColumns);
  shape.tiling.flags = accumulate ? ops::kWeightGradAccumulate : 0;
  shape.tiles = int64_t{ops::tileCount(m, shape.tiling.tileM)} * ops::tileCount(n, shape.tiling.tileN);
  return shape;
}

FamilyShape shapeActivation(int32_t n, uint32_t kind, float limit) {
  FamilyShape shape = shapeRows(n);
  shape.tiling.flags = ops::activationFlags(kind, limit);
  return shape;
}

FamilyShape shapeRows(int32_t n, int32_t k) {
  FamilyShape shape;
  shape.tiling.n = n;
  shape.tiling.k = k;
  return shape;
}

}  // namespace sluice
