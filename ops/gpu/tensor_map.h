// What the host says of matrices for kernels (ops/gpu/hw.h). Plain records for host and device.
#pragma once

#include <cstdint>

namespace sluice::gpu {

// Describes a matrix in global memory and a box of it, for the copies of its boxes. The host makes it: for a
// GPU the driver, for the model ops/gpu/model/launch.h, each with a content of its own.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

// How an operand lies in shared memory, in areas of 128-byte rows as copyBox() makes them.
enum class Major : uint8_t {
  kK = 0,   // a row is 64 elements along k of one row of a (one column of b)
  kMn = 1,  // a row is 64 rows of a (columns of b) of one k; the next 64 lie `pitch` bytes further
};

}  // namespace sluice::gpu
