// Matrices in memory of a GPU, as kernels (ops/gpu/hw.h) take them, and how the host makes them. Plain
// records for host and device.
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

// A matrix in global memory [experts, rows, columns], and a map of it for the operand that the map's box is
// for: `a` 128 rows, a weight [K,N] 64 rows, a weight [N,K] half of kColumns rows, what is stored 64 rows; 64
// columns each. WeightGrad (product_plan.h) describes its own. Where a matrix can have no map, it is loaded
// and stored without; gate_up of a gradient needs none.
struct MatrixHead {
  std::byte* data;
  int64_t rowPitch, outerPitch;  // bytes, from row to row and from expert to expert
  int32_t columns, rows;         // of one expert
  bool isMapped;                 // needs `data` and pitches that are multiples of 16 bytes
};
struct Matrix {
  TensorMap map;  // if isMapped
  MatrixHead head;
};

inline constexpr uint16_t kNoMatrix = 0xffff;

// Whether TMA can copy boxes of it.
inline bool canBeMapped(const MappedMatrix& matrix) {
  const auto isAligned = [](int64_t number) { return number % 16 == 0; };
  return matrix.columns > 0 && matrix.rows > 0 && matrix.outers > 0 &&
         isAligned(reinterpret_cast<int64_t>(matrix.data)) && isAligned(matrix.rowPitch) &&
         isAligned(matrix.outerPitch);
}

// MapOf: TensorMap makeMap(const MappedMatrix&), called if there can be a map. The columns of a box follow
// from the size of an element.
template <class MapOf>
Matrix makeMatrix(MappedMatrix matrix, const MapOf& makeMap) {
  matrix.boxColumns = 128 / matrix.elementBytes;
  const bool isMapped = canBeMapped(matrix);
  return {.map = isMapped ? makeMap(matrix) : TensorMap{},
          .head = {.data = const_cast<std::byte*>(matrix.data),
                   .rowPitch = matrix.rowPitch,
                   .outerPitch = matrix.outerPitch,
                   .columns = static_cast<int32_t>(matrix.columns),
                   .rows = static_cast<int32_t>(matrix.rows),
                   .isMapped = isMapped}};
}

}  // namespace sluice::gpu
