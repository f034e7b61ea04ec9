// The tiling of scale: a task computes all rows and columns of its slot.
//
// Tiling fields: n the columns, alpha the factor. There is one tile.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

constexpr int32_t scaleTiles(const Tiling&) { return 1; }

}  // namespace sluice::ops
