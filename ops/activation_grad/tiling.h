// The tiling of the gradient of SwiGLU: a task computes all rows and columns of its slot.
//
// Tiling fields: n = I, the width of gate, of up and of the incoming gradient. There is one tile.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

constexpr int32_t swigluGradTiles(const Tiling&) { return 1; }

}  // namespace sluice::ops
