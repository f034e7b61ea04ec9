// One tile of the weight gradient of a grouped product, over the rows of an expert:
// out[expert] [k, n] = or += a[rows, k]^T * dy[rows, n], bf16 with fp32 sums.
//
// A tile is 128 columns of a (rows of out) and kColumns of dy. A stage of the ring holds 64 rows of both
// operands as they lie, so both are Major::kMn. The expert's rows are the sum: the maps of a and dy begin and
// end with them, and what follows reads as 0. TensorMaps also drop what lies outside of out. So nothing is
// masked here. An expert without rows has no stage, and a gradient of zeros.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/product_plan.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/stage_rows.h"

namespace sluice::gpu {

// Loads all stages. One thread, after it knows that both operands are there. False: no stage became free.
template <class Shape>
SLUICE_DEVICE bool loadWeightGrad(const WeightGrad* grad, const Matrix* matrices,
                                  ProductMemory<Shape>* memory, RingPosition<Shape::kStages>* at,
                                  uint64_t limit) {
  const TensorMap* const a = &matrices[load(&grad->a)].map;
  const TensorMap* const dy = &matrices[load(&grad->dy)].map;
  const int firstRow = load(&grad->firstRow), firstColumn = load(&grad->firstColumn);
  const int rows = load(&grad->rows);
  for (int row = 0; row < rows; row += Shape::kDepth) {
    if (!awaitEmpty(&memory->ring, *at, limit)) return false;
    Barrier* const full = &memory->ring.full[at->stage];
    std::byte* area = memory->stages[at->stage];
    arriveExpecting(full, Shape::kStageBytes);
    for (int column = 0; column < Shape::kRows; column += 64, area += Shape::kAreaBytes)
      copyBox(area, a, full, firstRow + column, row, 0, Shape::kDepth);
    for (int column = 0; column < Shape::kColumns; column += 64, area += Shape::kAreaBytes)
      copyBox(area, dy, full, firstColumn + column, row, 0, Shape::kDepth);
    at->advance();
  }
  return true;
}

struct alignas(8) SumPair {
  float first, second;
};

// Stores or adds this warpgroup's 64 rows of the tile, of elements of kElementBytes: 4 is fp32, 2 is bf16.
// Afterwards thread 0 of the warpgroup may signal them.
template <class Shape, int kElementBytes>
SLUICE_DEVICE void storeWeightGrad(const WeightGrad* grad, const Matrix* matrices,
                                   ProductMemory<Shape>* memory, const float (&sum)[Shape::kColumns / 2]) {
  constexpr int kPart = Shape::kRowBytes / kElementBytes;  // columns that are staged at once
  const Matrix* const out = &matrices[load(&grad->out)];
  const bool isAdded = load(&grad->form) == GradForm::kFp32Added;
  const int group = mathGroup();
  const int row = load(&grad->firstRow) + 64 * group, expert = load(&grad->expert);
  const int firstColumn = load(&grad->firstColumn), columns = load(&out->columns);
  Staging staging = {memory->staging[group], 0};
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / kPart; ++part) {
    const int column = firstColumn + kPart * part;
    if (column >= columns) break;
    std::byte* const staged = stage(&staging, [&sum, part](std::byte* area) {
      SLUICE_UNROLL
      for (int i = 0; i < kPart / 2; i += 2) {
        std::byte* const to = area + swizzled(fragmentRow(i), kElementBytes * fragmentColumn(i));
        const SumPair pair = {sum[kPart / 2 * part + i], sum[kPart / 2 * part + i + 1]};
        if constexpr (kElementBytes == 4)
          store(reinterpret_cast<SumPair*>(to), pair);
        else
          store(reinterpret_cast<uint32_t*>(to), packBf16(pair.first, pair.second));
      }
    });
    if (threadIndex() % 128 != 0) continue;
    if (isAdded)
      addBox(&out->map, staged, column, row, expert);
    else
      storeBox(&out->map, staged, column, row, expert);
    groupStores();
  }
  endStores();
}

// The whole task for a warpgroup of math. `sum` is 0.
template <class Shape>
SLUICE_DEVICE void runWeightGrad(const WeightGrad* grad, const Matrix* matrices, ProductMemory<Shape>* memory,
                                 RingPosition<Shape::kStages>* at, AbortWatch* watch,
                                 float (&sum)[Shape::kColumns / 2]) {
  const int steps = (load(&grad->rows) + Shape::kDepth - 1) / Shape::kDepth;
  if (steps > 0)
    multiplyStages<Shape, Major::kMn, Major::kMn>(memory, steps, at, watch, sum);
  else if (load(&grad->form) == GradForm::kFp32Added)
    return;
  if (load(&grad->form) == GradForm::kBf16)
    storeWeightGrad<Shape, 2>(grad, matrices, memory, sum);
  else
    storeWeightGrad<Shape, 4>(grad, matrices, memory, sum);
}

}  // namespace sluice::gpu
