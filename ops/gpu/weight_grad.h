// One tile of the weight gradient of a grouped product, over the rows of an expert:
// out[expert] [k, n] = or += a[rows, k]^T * dy[rows, n], bf16 with fp32 sums.
//
// A tile is 128 columns of a (rows of out) and kColumns of dy. A stage of the ring holds 64 rows of both
// operands as they lie, so both are Major::kMn. The expert's rows are the sum: the matrices a and dy begin
// and end with them, and what follows reads as 0. An expert without rows has no stage, and a gradient of
// zeros. Rows of an operand may also be gathered, and then end with the index.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/product_plan.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/stage_rows.h"

namespace sluice::gpu {

// By lane 0 of the warp that loads.
template <class Shape>
SLUICE_DEVICE void setOperands(const WeightGrad* grad, const Matrix* matrices, Operands* operands) {
  const int rows = load(&grad->rows), divisor = load(&grad->divisor);
  const int firstRow = load(&grad->firstRow), firstColumn = load(&grad->firstColumn);
  setOperand(&operands->each[0], {.matrix = &matrices[load(&grad->a)],
                                  .outer = 0,
                                  .major = Major::kMn,
                                  .boxes = Shape::kRows / 64,
                                  .boxRows = Shape::kDepth,
                                  .begins = {firstRow, firstRow + Shape::kRows / 2},
                                  .rows = Shape::kDepth,
                                  .rowIndex = load(&grad->aIndex),
                                  .indexEnd = rows,
                                  .divisor = divisor,
                                  .scale = load(&grad->scale)});
  setOperand(&operands->each[1], {.matrix = &matrices[load(&grad->dy)],
                                  .outer = 0,
                                  .major = Major::kMn,
                                  .boxes = Shape::kColumns / 64,
                                  .boxRows = Shape::kDepth,
                                  .begins = {firstColumn, firstColumn + Shape::kColumns / 2},
                                  .rows = Shape::kDepth,
                                  .rowIndex = load(&grad->dyIndex),
                                  .indexEnd = rows,
                                  .divisor = divisor});
  store(&operands->k, rows);
}

struct alignas(8) SumPair {
  float first, second;
};

SLUICE_DEVICE bool isAdded(const WeightGrad* grad) {
  const GradForm form = load(&grad->form);
  return form == GradForm::kFp32Added || form == GradForm::kBf16Added;
}
SLUICE_DEVICE bool isBf16(const WeightGrad* grad) {
  const GradForm form = load(&grad->form);
  return form == GradForm::kBf16 || form == GradForm::kBf16Added;
}

SLUICE_DEVICE float widened(float value) { return value; }
SLUICE_DEVICE float widened(uint16_t value) { return firstBf16(value); }

// This warpgroup's 64 rows of the tile, some columns of which are staged at once.
struct GradPart {
  std::byte* corner;  // in out
  int64_t pitch;
  int rows, columns;  // from there on; may be more than the part has, and below 1
};

// What is there at columns `column` and the one after it; 0 outside of the matrix.
template <class Element>
SLUICE_DEVICE SumPair loadPair(const GradPart& part, int row, int column) {
  const auto* const from = reinterpret_cast<const Element*>(part.corner + row * part.pitch) + column;
  const int left = row < part.rows ? part.columns - column : 0;
  return {left > 0 ? widened(load(from)) : 0, left > 1 ? widened(load(from + 1)) : 0};
}

// Stores or adds this warpgroup's 64 rows of the tile, of elements that are float, or uint16_t for bf16.
// Where TMA adds fp32, it adds to what is there; else this does, before it stores. Afterwards thread 0 of the
// warpgroup may signal them.
template <class Shape, class Element>
SLUICE_DEVICE void storeWeightGrad(const WeightGrad* grad, const Matrix* matrices,
                                   ProductMemory<Shape>* memory, const float (&sum)[Shape::kColumns / 2]) {
  constexpr int kElementBytes = sizeof(Element);
  constexpr int kPart = Shape::kRowBytes / kElementBytes;  // columns that are staged at once
  const Matrix* const out = &matrices[load(&grad->out)];
  const bool isMapped = load(&out->isMapped);
  const int group = mathGroup();
  const int row = load(&grad->firstRow) + 64 * group, expert = load(&grad->expert);
  const int firstColumn = load(&grad->firstColumn), endColumn = load(&grad->endColumn);
  const int rowsLeft = load(&grad->endRow) - row;
  const bool hasBoxRows = rowsLeft >= 64 || load(&grad->endRow) == load(&out->rows);
  const float alpha = load(&grad->alpha);
  const int64_t pitch = load(&out->rowPitch);
  std::byte* const rowBegin = load(&out->data) + expert * load(&out->outerPitch) + row * pitch;
  Staging staging = {memory->staging[group], 0};
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / kPart; ++part) {
    const int column = firstColumn + kPart * part;
    if (column >= endColumn) break;
    const GradPart to = {rowBegin + kElementBytes * column, pitch, rowsLeft, endColumn - column};
    // what lies outside of the matrix is not written
    const bool isBox = isMapped && hasBoxRows && (to.columns >= kPart || endColumn == load(&out->columns));
    const bool addsBox = isBox && load(&grad->form) == GradForm::kFp32Added;
    const bool addsHere = isAdded(grad) && !addsBox;
    std::byte* const staged = stage(&staging, [&sum, &to, part, alpha, addsHere](std::byte* area) {
      SLUICE_UNROLL
      for (int i = 0; i < kPart / 2; i += 2) {
        std::byte* const place = area + swizzled(fragmentRow(i), kElementBytes * fragmentColumn(i));
        SumPair pair = {alpha * sum[kPart / 2 * part + i], alpha * sum[kPart / 2 * part + i + 1]};
        if (addsHere) {
          const SumPair before = loadPair<Element>(to, fragmentRow(i), fragmentColumn(i));
          pair = {before.first + pair.first, before.second + pair.second};
        }
        if constexpr (kElementBytes == 4)
          store(reinterpret_cast<SumPair*>(place), pair);
        else
          store(reinterpret_cast<uint32_t*>(place), packBf16(pair.first, pair.second));
      }
    });
    if (!isBox)
      storePlain<kElementBytes>(to.corner, pitch, staged, {0, to.rows < 64 ? to.rows : 64}, to.columns);
    if (!isBox || threadIndex() % 128 != 0) continue;
    fenceMap(&out->map);
    if (addsBox)
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
  if (steps == 0 && isAdded(grad)) return;  // adding 0 would turn a -0 into 0
  multiplyStages<Shape, Major::kMn, Major::kMn>(memory, steps, at, watch, sum);
  if (isBf16(grad))
    storeWeightGrad<Shape, uint16_t>(grad, matrices, memory, sum);
  else
    storeWeightGrad<Shape, float>(grad, matrices, memory, sum);
}

}  // namespace sluice::gpu
