// Family formation: the tiling of one task family from the shape of its op and the target's tile sizes.
//
// A tile is at most the target's, and tiles of one dimension are even: the last is not a sliver.
#pragma once

#include <cstdint>

#include "runtime/base/tiling.h"

namespace sluice {

struct TileSizes {
  int32_t gmmColumns = 256;         // columns of a gmm's output in one task
  int32_t weightGradRows = 256;     // of a weight gradient, one task: this
  int32_t weightGradColumns = 256;  // by this
  friend bool operator==(const TileSizes&, const TileSizes&) = default;
};

// More tiles make a table that nobody wants: larger tiles are the answer.
inline constexpr int64_t kMaxTiles = 1 << 20;

struct FamilyShape {
  Tiling tiling;
  int64_t tiles = 1;  // may be more than kMaxTiles
};

// The tile that cuts `length` evenly into tiles of at most `most`, a multiple of 16 where `most` is 16 or
// more and the length allows. length, most >= 1.
int32_t evenTile(int32_t length, int32_t most);

// A product is multiplied by `alpha`, which is finite and not 0.
FamilyShape shapeGmm(int32_t n, int32_t k, bool transposed, const TileSizes& sizes, float alpha = 1);
FamilyShape shapeWeightGrad(int32_t m, int32_t n, const TileSizes& sizes, bool accumulate = false,
                            float alpha = 1);

// Which function an activation is: `kind` as ops::ActivationKind counts, and the limit of the one that has
// it.
struct ActivationFunction {
  uint32_t kind = 0;
  float limit = 0;
};

// Activation and its gradient: one tile, rows of n elements.
FamilyShape shapeActivation(int32_t n, ActivationFunction function);

// A gmm of 2 n columns and the activation of its product: tiles of columns of the activation, half as wide as
// those of a gmm, since each is computed from as many columns of gate and of up.
FamilyShape shapeGmmActivation(int32_t n, int32_t k, bool transposed, ActivationFunction function,
                               const TileSizes& sizes, float alpha = 1);

// A gmm of n columns and the activation's gradient of its product. `wholeRows`: one tile, as the gradient of
// a row's weight needs all columns.
FamilyShape shapeGmmActivationGrad(int32_t n, int32_t k, bool transposed, ActivationFunction function,
                                   bool wholeRows, const TileSizes& sizes, float alpha = 1);

// alpha times rows of n elements: one tile.
FamilyShape shapeScale(int32_t n, float alpha);

// Dispatch, both halves of a combine, and a sum of rows: one tile, rows of n elements.
FamilyShape shapeRows(int32_t n, int32_t k = 0);

}  // namespace sluice
