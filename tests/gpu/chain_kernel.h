// The kernel of chained products on the model of the hardware, from ops/gpu/chain.h or from a copy with a
// mistake.
#pragma once

#include <string>

#include "ops/gpu/model/launch.h"
#include "runtime/abi/gpu/chain_plan.h"

namespace sluice::gpu {

// Tiles of 128 or 256 columns, with as many stages as on a GPU. Returns what the model found wrong; empty:
// nothing.
std::string runChainKernel(model::Launch how, int columns, const Launch& launch);

}  // namespace sluice::gpu
