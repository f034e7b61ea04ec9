// The tiling of dispatch: a task gathers the rows of one piece, whole.
//
// Tiling fields: n = H, the elements of a row. There is one tile.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

constexpr int32_t dispatchTiles(const Tiling&) { return 1; }

}  // namespace sluice::ops
