// Copies of rows by the threads of the comm role, between memory of any alignment, which may be another
// rank's.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/row_index.h"
#include "ops/gpu/row_walk.h"
#include "runtime/abi/gpu/row_plan.h"

namespace sluice::gpu {

// From byte `begin` of each row on whole Units, by thread `thread` of `threads`. Returns where they end.
template <class Unit>
SLUICE_DEVICE int copyUnits(const RowCopy* copy, int begin, int thread, int threads) {
  constexpr int kInFlight = sizeof(Unit) == sizeof(Part) ? 4 : 1;  // others are rare
  constexpr int kUnit = sizeof(Unit);
  const std::byte* const from = load(&copy->from);
  std::byte* const to = load(&copy->to);
  const int64_t fromPitch = load(&copy->fromPitch), toPitch = load(&copy->toPitch);
  const int32_t* const index = load(&copy->index);
  const int rows = load(&copy->rows), divisor = load(&copy->divisor);
  const int units = (load(&copy->bytes) - begin) / kUnit;
  if (units <= 0) return begin;
  RowWalk at(units, thread, threads);
  while (at.row < rows) {
    Unit loaded[kInFlight] = {};
    Unit* targets[kInFlight];
    SLUICE_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      targets[i] = nullptr;
      if (at.row >= rows) continue;
      const int source = indexedRow(index, at.row, divisor);
      const int column = begin + kUnit * at.piece;
      if (source >= 0) loaded[i] = load(reinterpret_cast<const Unit*>(from + source * fromPitch + column));
      targets[i] = reinterpret_cast<Unit*>(to + at.row * toPitch + column);
      at.advance();
    }
    SLUICE_UNROLL
    for (int i = 0; i < kInFlight; ++i)
      if (targets[i] != nullptr) store(targets[i], loaded[i]);
  }
  return begin + kUnit * units;
}

// By thread `thread` of `threads`, which together copy all: as wide as all rows are aligned, and the last
// bytes of a row one by one.
SLUICE_DEVICE void copyRows(const RowCopy* copy, int thread, int threads) {
  const int bytes = load(&copy->bytes);
  const auto addresses =
      reinterpret_cast<uintptr_t>(load(&copy->from)) | reinterpret_cast<uintptr_t>(load(&copy->to)) |
      static_cast<uintptr_t>(load(&copy->fromPitch)) | static_cast<uintptr_t>(load(&copy->toPitch));
  const auto areIn = [bytes, addresses](int width) {
    return bytes >= width && addresses % static_cast<uintptr_t>(width) == 0;
  };
  int copied = 0;
  if (areIn(16))
    copied = copyUnits<Part>(copy, 0, thread, threads);
  else if (areIn(4))
    copied = copyUnits<uint32_t>(copy, 0, thread, threads);
  else if (areIn(2))
    copied = copyUnits<uint16_t>(copy, 0, thread, threads);
  copyUnits<uint8_t>(copy, copied, thread, threads);
}

}  // namespace sluice::gpu
