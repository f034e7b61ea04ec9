// The tiling of the activations and of their gradients: a task computes all rows and columns of its slot.
//
// Tiling fields: n = I, the width of gate, of up and of the result; flags bits 0 and 1 the ActivationKind,
// bits 16 to 31 the limit of kSwigluClamp as bf16, else 0. There is one tile.
#pragma once

#include "ops/tiling.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {

constexpr int32_t activationTiles(const Tiling&) { return 1; }

constexpr uint32_t activationKindBits(const Tiling& tiling) { return tiling.flags & 3u; }

constexpr float activationLimit(const Tiling& tiling) {
  return toFloat(BFloat16{static_cast<uint16_t>(tiling.flags >> 16)});
}

constexpr uint32_t activationFlags(uint32_t kind, float limit) {
  return kind | uint32_t{toBFloat16(limit).bits} << 16;
}

}  // namespace sluice::ops
