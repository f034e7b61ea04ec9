// Family formation: how the output of an op is cut into tiles, from its shape and the target's tile sizes.
//
// A tile is at most the target's, and tiles of one dimension are even: the last is not a sliver.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

struct TileSizes {
  int32_t gmmColumns = 256;         // columns of a gmm's output in one task
  int32_t weightGradRows = 256;     // of a weight gradient, one task: this
  int32_t weightGradColumns = 256;  // by this
  friend bool operator==(const TileSizes&, const TileSizes&) = default;
};

// More tiles make a table that nobody wants: larger tiles are the answer.
inline constexpr int64_t kMaxTiles = 1 << 20;

// The tile that cuts `length` evenly into tiles of at most `most`, a multiple of 16 where `most` is 16 or
// more and the length allows. length, most >= 1.
int32_t evenTile(int32_t length, int32_t most);

// Sets the tiles of a tiling whose other fields say what the op computes. An op that multiplies by columns of
// gate and of up has tiles half as wide as the other products, since each is computed from as many columns of
// both. `wholeRows`: one tile, as the gradient of a row's weight needs all columns.
void cutTiles(OpKind op, bool wholeRows, const TileSizes& sizes, Tiling& tiling);

}  // namespace sluice
