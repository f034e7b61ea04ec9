// The tiling of combine: its first family returns the rows of a piece, its second sums the rows of each
// token.
//
// Tiling fields: return: n = H. Sum: n = H, k = topK, the rows summed for one token. Both have one tile.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

constexpr int32_t combineReturnTiles(const Tiling&) { return 1; }
constexpr int32_t combineSumTiles(const Tiling&) { return 1; }

}  // namespace sluice::ops
