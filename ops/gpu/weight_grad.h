// One tile of the weight gradient of a grouped product, over the rows of an expert:
// out[expert] [k, n] = or += a[rows, k]^T * dy[rows, n], bf16 with fp32 sums.
//
// A tile is 128 columns of a (rows of out) and kColumns of dy. A stage of the ring holds 64 rows of both
// operands as they lie, so both are Major::kMn. The expert's rows are the sum: the maps of a and dy begin and
// end with them, and what follows reads as 0. TensorMaps also drop what lies outside of out. So nothing is
// masked here. An expert without rows has a gradient of zeros, the product of one stage from before its first
// row: to set sums to 0 instead makes ptxas serialize all products of the kernel (C7515).
#pragma once

#include "ops/gpu/chain_plan.h"
#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/ring.h"

namespace sluice::gpu {

// The stages of the task; 0: there is nothing to add.
template <class Shape>
SLUICE_DEVICE int stepsOf(const WeightGrad* grad) {
  const int rows = load(&grad->rows);
  if (rows > 0) return (rows + Shape::kDepth - 1) / Shape::kDepth;
  return load(&grad->form) == GradForm::kFp32Added ? 0 : 1;
}

// Loads all stages. One thread, after it knows that both operands are there. False: no stage became free.
template <class Shape>
SLUICE_DEVICE bool loadWeightGrad(const WeightGrad* grad, const Matrix* matrices,
                                  ProductMemory<Shape>* memory, RingPosition<Shape::kStages>* at,
                                  uint64_t limit) {
  const TensorMap* const a = &matrices[load(&grad->a)].map;
  const TensorMap* const dy = &matrices[load(&grad->dy)].map;
  const int firstRow = load(&grad->firstRow), firstColumn = load(&grad->firstColumn);
  const int begin = load(&grad->rows) > 0 ? 0 : -Shape::kDepth;
  const int steps = stepsOf<Shape>(grad);
  for (int step = 0; step < steps; ++step) {
    const int row = begin + step * Shape::kDepth;
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
  const bool isFirst = threadIndex() % 128 == 0;
  const int row = load(&grad->firstRow) + 64 * group, expert = load(&grad->expert);
  const int firstColumn = load(&grad->firstColumn), columns = load(&out->columns);
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / kPart; ++part) {
    const int column = firstColumn + kPart * part;
    if (column >= columns) break;
    std::byte* const staged = memory->staging[group][part % 2];
    if (isFirst) waitStoresRead<1>();  // that of two parts ago has left this memory
    syncNamed(1 + group, 128);
    SLUICE_UNROLL
    for (int i = 0; i < kPart / 2; i += 2) {
      std::byte* const to = staged + swizzled(fragmentRow(i), kElementBytes * fragmentColumn(i));
      const SumPair pair = {sum[kPart / 2 * part + i], sum[kPart / 2 * part + i + 1]};
      if constexpr (kElementBytes == 4)
        store(reinterpret_cast<SumPair*>(to), pair);
      else
        store(reinterpret_cast<uint32_t*>(to), packBf16(pair.first, pair.second));
    }
    fenceProxyAsync();
    syncNamed(1 + group, 128);
    if (!isFirst) continue;
    if (isAdded)
      addBox(&out->map, staged, column, row, expert);
    else
      storeBox(&out->map, staged, column, row, expert);
    groupStores();
  }
  if (isFirst) waitStores<0>();
}

// The whole task for a warpgroup of math. `sum` is that of all kinds of tasks: with one for each, registers
// are spilled.
template <class Shape>
SLUICE_DEVICE void runWeightGrad(const WeightGrad* grad, const Matrix* matrices, ProductMemory<Shape>* memory,
                                 RingPosition<Shape::kStages>* at, AbortWatch* watch,
                                 float (&sum)[Shape::kColumns / 2]) {
  const int steps = stepsOf<Shape>(grad);
  if (steps == 0) return;
  multiplyStages<Shape, Major::kMn, Major::kMn>(memory, steps, at, watch, sum);
  if (load(&grad->form) == GradForm::kBf16)
    storeWeightGrad<Shape, 2>(grad, matrices, memory, sum);
  else
    storeWeightGrad<Shape, 4>(grad, matrices, memory, sum);
}

}  // namespace sluice::gpu
