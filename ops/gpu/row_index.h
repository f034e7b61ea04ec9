// Rows of a matrix that an index names.
#pragma once

#include "ops/gpu/hw.h"

namespace sluice::gpu {

// Row `row` of what is gathered; below 0: it is all 0. Without an index it is the row itself.
SLUICE_DEVICE int indexedRow(const int32_t* index, int row, int divisor) {
  if (index == nullptr) return row;
  const int named = load(&index[row]);
  return named < 0 ? named : named / divisor;
}

}  // namespace sluice::gpu
