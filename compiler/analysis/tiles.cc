#include "compiler/analysis/tiles.h"

#include <algorithm>

namespace sluice {

int32_t evenTile(int32_t length, int32_t most) {
  constexpr int32_t kUnit = 16;
  const int32_t even = ceilDiv(length, ceilDiv(length, most));
  return std::min({ceilDiv(even, kUnit) * kUnit, most, length});
}

FamilyShape shapeGmm(int32_t n, int32_t k, bool transposed, const TileSizes& sizes) {
  FamilyShape shape;
  shape.tiling.n = n;
  shape.tiling.k = k;
  shape.tiling.tileN = evenTile(n, sizes.gmmColumns);
  shape.tiling.flags = transposed ? 1 : 0;
  shape.tiles = ceilDiv(n, shape.tiling.tileN);
  return shape;
}

FamilyShape shapeWeightGrad(int32_t m, int32_t n, const TileSizes& sizes) {
  FamilyShape shape;
  shape.tiling.m = m;
  shape.tiling.n = n;
  shape.tiling.tileM = evenTile(m, sizes.weightGradRows);
  shape.tiling.tileN = evenTile(n, sizes.weightGradColumns);
  shape.tiles = ceilDiv(m, shape.tiling.tileM) * ceilDiv(n, shape.tiling.tileN);
  return shape;
}

FamilyShape shapeRows(int32_t n, int32_t k) {
  FamilyShape shape;
  shape.tiling.n = n;
  shape.tiling.k = k;
  return shape;
}

}  // namespace sluice
