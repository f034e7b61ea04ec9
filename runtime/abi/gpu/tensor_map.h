// What the host says of matrices for kernels (ops/gpu/hw.h). Plain records for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::gpu {

// Describes a matrix in global memory and a box of it, for the copies of its boxes. The host makes it: for a
// GPU the driver, for the model ops/gpu/model/launch.h, each with a content of its own. It is aligned as
// CUDA's own type, so that no two lie in one line of a cache.
struct alignas(128) TensorMap {
  uint64_t opaque[16];
};

// A matrix [outers, rows, columns] in memory of the device, of bf16 or fp32 (2 or 4 bytes), and a box of it.
// `data` and pitches (bytes) are multiples of 16. A row of a box has 128 bytes, a box at most 256 rows.
struct MappedMatrix {
  const std::byte* data = nullptr;
  int elementBytes = 2;
  int64_t columns = 0, rows = 0, outers = 1;
  int64_t rowPitch = 0, outerPitch = 0;
  int boxColumns = 0, boxRows = 0;
};

// How an operand lies in shared memory, in areas of 128-byte rows as copyBox() makes them.
enum class Major : uint8_t {
  kK = 0,   // a row is 64 elements along k of one row of a (one column of b)
  kMn = 1,  // a row is 64 rows of a (columns of b) of one k; the next 64 lie `pitch` bytes further
};

}  // namespace sluice::gpu
