// The tiling of the gradient of the activations: a task computes all rows and columns of its slot.
//
// Tiling fields: n = I, the width of gate, of up and of the incoming gradient; flags as in
// ops/activation/tiling.h. There is one tile.
#pragma once

#include "ops/tiling.h"

namespace sluice::ops {

constexpr int32_t activationGradTiles(const Tiling&) { return 1; }

}  // namespace sluice::ops
