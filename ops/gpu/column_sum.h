// RowOp::kColumnSum: sums of columns over many rows. A warpgroup sums kSumColumns columns at a time; eights
// of its threads take every eighth row, and their sums meet in shared memory.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/row_numbers.h"
#include "ops/gpu/stage_rows.h"
#include "runtime/abi/gpu/row_plan.h"

namespace sluice::gpu {

inline constexpr int kSumColumns = 128;  // one for each thread of a warpgroup when sums meet
inline constexpr int kSumSlices = 128 * Bf16::kCount / kSumColumns;
inline constexpr uint32_t kColumnSumBytes = kSumSlices * kSumColumns * sizeof(float);
static_assert(kColumnSumBytes <= kStagedBytes);

// Sums part `piece` of rows slice, slice + kSumSlices...
SLUICE_DEVICE void sumSlice(const RowWork* work, int slice, int piece, Values<Bf16>& sums) {
  constexpr int kInFlight = 4;
  const int rows = load(&work->rows), columns = load(&work->columns);
  const std::byte* const from = load(&work->in[0]);
  const std::byte* const scales = load(&work->in[1]);
  const int64_t pitch = load(&work->inPitch[0]);
  for (int row = slice; row < rows; row += kInFlight * kSumSlices) {
    Part raw[kInFlight] = {};
    float scale[kInFlight];
    SLUICE_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const int each = row + i * kSumSlices;
      scale[i] = each < rows ? floatAt(scales, each, 1) : 0;
      if (each < rows) raw[i] = loadPart<Bf16>(from + each * pitch, piece, columns);
    }
    SLUICE_UNROLL
    for (int i = 0; i < kInFlight; ++i) SLUICE_UNROLL
    for (int n = 0; n < Bf16::kCount; ++n) sums[n] += scale[i] * Bf16::unpackValue(raw[i], n);
  }
}

// By one thread.
SLUICE_DEVICE void storeColumnSum(const RowWork* work, int column, float sum) {
  const bool isAdded = load(&work->accumulates);
  std::byte* const out = load(&work->out[0]);
  if (load(&work->isFp32)) {
    auto* const to = reinterpret_cast<float*>(out) + column;
    store(to, isAdded ? load(to) + sum : sum);
    return;
  }
  auto* const to = reinterpret_cast<uint16_t*>(out) + column;
  const float all = isAdded ? firstBf16(load(to)) + sum : sum;
  store(to, static_cast<uint16_t>(packBf16(all, 0)));
}

// By a warpgroup, with kColumnSumBytes of shared memory of its own.
SLUICE_DEVICE void sumColumns(const RowWork* work, std::byte* scratch) {
  constexpr int kPieces = kSumColumns / Bf16::kCount;
  const int columns = load(&work->columns), group = mathGroup(), thread = threadIndex() % 128;
  const int slice = thread / kPieces, piece = thread % kPieces;
  if (load(&work->accumulates) && load(&work->rows) <= 0) return;  // adding 0 would turn a -0 into 0
  auto* const slices = reinterpret_cast<float*>(scratch);
  for (int first = group * kSumColumns; first < columns; first += 2 * kSumColumns) {
    Values<Bf16> sums = {};
    sumSlice(work, slice, first / Bf16::kCount + piece, sums);
    syncNamed(1 + group, 128);  // what the memory held has been read
    SLUICE_UNROLL
    for (int n = 0; n < Bf16::kCount; ++n)
      store(&slices[slice * kSumColumns + piece * Bf16::kCount + n], sums[n]);
    syncNamed(1 + group, 128);
    float sum = 0;
    SLUICE_UNROLL
    for (int i = 0; i < kSumSlices; ++i) sum += load(&slices[i * kSumColumns + thread]);
    if (first + thread < columns) storeColumnSum(work, first + thread, sum);
  }
}

}  // namespace sluice::gpu
