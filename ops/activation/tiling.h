// The tiling of SwiGLU: a task computes all rows and columns of its slot.
//
// Tiling fields: n = I, the width of gate, of up and of the result. There is one tile.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

constexpr int32_t swigluTiles(const Tiling&) { return 1; }

}  // namespace sluice::ops
