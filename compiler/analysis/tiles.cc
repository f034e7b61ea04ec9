#include "compiler/analysis/tiles.h"

#include <algorithm>

#include "ops/activation/tiling.h"
#include "ops/gmm/tiling.h"
#include "ops/gmm_activation/tiling.h"
#include "ops/gmm_weight_grad/tiling.h"

namespace sluice {
namespace {

constexpr int32_t kTileUnit = 16;  // kernels work on as many columns at once

float alphaField(float alpha) { return alpha == 1 ? 0 : alpha; }

uint32_t fusedFlags(bool transposed, ActivationFunction function) {
  return ops::activationFlags(function.kind, function.limit) | (transposed ? ops::kFusedTransposedWeight : 0);
}

// Rows of n columns, each the sum of k products, in tiles of at most `columns`.
FamilyShape shapeProduct(int32_t n, int32_t k, int32_t columns, float alpha) {
  FamilyShape shape;
  shape.tiling.n = n;
  shape.tiling.k = k;
  shape.tiling.tileN = columns >= n ? n : evenTile(n, columns);
  shape.tiling.alpha = alphaField(alpha);
  shape.tiles = ops::gmmTiles(shape.tiling);
  return shape;
}

}  // namespace

int32_t evenTile(int32_t length, int32_t most) {
  return std::min(ops::equalTile(length, most, std::min(most, kTileUnit)), length);
}

FamilyShape shapeGmm(int32_t n, int32_t k, bool transposed, const TileSizes& sizes, float alpha) {
  FamilyShape shape = shapeProduct(n, k, sizes.gmmColumns, alpha);
  shape.tiling.flags = transposed ? ops::kGmmTransposedWeight : 0;
  return shape;
}

FamilyShape shapeWeightGrad(int32_t m, int32_t n, const TileSizes& sizes, bool accumulate, float alpha) {
  FamilyShape shape;
  shape.tiling.m = m;
  shape.tiling.n = n;
  shape.tiling.tileM = evenTile(m, sizes.weightGradRows);
  shape.tiling.tileN = evenTile(n, sizes.weightGradColumns);
  shape.tiling.flags = accumulate ? ops::kWeightGradAccumulate : 0;
  shape.tiling.alpha = alphaField(alpha);
  shape.tiles = int64_t{ops::tileCount(m, shape.tiling.tileM)} * ops::tileCount(n, shape.tiling.tileN);
  return shape;
}

FamilyShape shapeActivation(int32_t n, ActivationFunction function) {
  FamilyShape shape = shapeRows(n);
  shape.tiling.flags = ops::activationFlags(function.kind, function.limit);
  return shape;
}

FamilyShape shapeGmmActivation(int32_t n, int32_t k, bool transposed, ActivationFunction function,
                               const TileSizes& sizes, float alpha) {
  FamilyShape shape =
      shapeProduct(n, k, std::max(sizes.gmmColumns / 2, std::min(sizes.gmmColumns, kTileUnit)), alpha);
  shape.tiling.flags = fusedFlags(transposed, function);
  return shape;
}

FamilyShape shapeGmmActivationGrad(int32_t n, int32_t k, bool transposed, ActivationFunction function,
                                   bool wholeRows, const TileSizes& sizes, float alpha) {
  FamilyShape shape = shapeProduct(n, k, wholeRows ? n : sizes.gmmColumns, alpha);
  shape.tiling.flags = fusedFlags(transposed, function);
  return shape;
}

FamilyShape shapeScale(int32_t n, float alpha) {
  FamilyShape shape = shapeRows(n);
  shape.tiling.alpha = alphaField(alpha);
  return shape;
}

FamilyShape shapeRows(int32_t n, int32_t k) {
  FamilyShape shape;
  shape.tiling.n = n;
  shape.tiling.k = k;
  return shape;
}

}  // namespace sluice
