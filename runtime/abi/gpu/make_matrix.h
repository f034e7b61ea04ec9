// How the host makes a Matrix (product_plan.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/gpu/product_plan.h"
#include "runtime/abi/gpu/tensor_map.h"

namespace sluice::gpu {

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
