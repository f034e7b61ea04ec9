// TensorMap: describes a matrix in global memory and a box of it, for the copies of its boxes (ops/gpu/hw.h).
//
// A plain record for host and device. The host makes it: for a GPU the driver, for the model
// ops/gpu/model/launch.h, each with a content of its own.
#pragma once

#include <cstdint>

namespace sluice::gpu {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

}  // namespace sluice::gpu
