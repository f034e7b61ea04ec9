// Rows of a matrix that an index names.
#pragma once

#include "ops/gpu/hw.h"

namespace sluice::gpu {

// The row that an index names; below 0: none, so that it is all 0.
SLUICE_DEVICE int namedRow(int32_t name, int divisor) {
  return name < 0 ? -1 : static_cast<int>(static_cast<uint32_t>(name) / static_cast<uint32_t>(divisor));
}

// Row `row` of what is gathered, likewise. Without an index it is the row itself.
SLUICE_DEVICE int indexedRow(const int32_t* index, int row, int divisor) {
  return index == nullptr ? row : namedRow(load(&index[row]), divisor);
}

}  // namespace sluice::gpu
