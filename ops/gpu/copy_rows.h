// Copies of rows by the threads of the comm role, between memory of any alignment.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/row_plan.h"

namespace sluice::gpu {

// By thread `thread` of `threads`, which together copy all.
SLUICE_DEVICE void copyRows(const RowCopy* copy, int thread, int threads) {
  const std::byte* const from = load(&copy->from);
  std::byte* const to = load(&copy->to);
  const int64_t fromPitch = load(&copy->fromPitch), toPitch = load(&copy->toPitch);
  const int32_t* const index = load(&copy->index);
  const int bytes = load(&copy->bytes), rows = load(&copy->rows), divisor = load(&copy->divisor);
  for (int row = 0; row < rows; ++row) {
    const int source = index == nullptr ? row : load(&index[row]) / divisor;
    for (int at = thread; at < bytes; at += threads)
      store(&to[row * toPitch + at], load(&from[source * fromPitch + at]));
  }
}

}  // namespace sluice::gpu
