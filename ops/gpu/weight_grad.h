// One tile of the weight gradient of a grouped product, over the rows of an expert:
// out[expert] [k, n] = or += a[rows, k]^T * dy[rows, n], bf16 with fp32 sums.
//
// A tile is 128 columns of a (rows of out) and kColumns of dy. A stage of the ring holds 64 rows of both
// operands as they lie, so both are Major::kMn. The expert's rows are the sum: the matrices a and dy begin
// and end with them, and what follows reads as 0. An expert without rows has no stage, and a gradient of
// zeros. Rows of an operand may also be gathered, and then end with the index.
#pragma once

#include <type_traits>

#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/stage_rows.h"
#include "runtime/abi/gpu/product_plan.h"

namespace sluice::gpu {

// By lane 0 of the warp that loads.
template <class Shape>
SLUICE_DEVICE void setOperands(const WeightGrad* grad, const NearMatrix* matrices, Operands* operands) {
  const int rows = load(&grad->rows), divisor = load(&grad->divisor);
  const int firstRow = load(&grad->firstRow), firstColumn = load(&grad->firstColumn);
  setOperand(&operands->each[0], {.matrix = &matrices[kA],
                                  .outer = 0,
                                  .major = Major::kMn,
                                  .boxes = Shape::kRows / 64,
                                  .boxRows = Shape::kDepth,
                                  .begins = {firstRow, firstRow + Shape::kRows / 2},
                                  .rows = Shape::kDepth,
                                  .rowIndex = load(&grad->aIndex),
                                  .indexEnd = rows,
                                  .divisor = divisor});
  setOperand(&operands->each[1], {.matrix = &matrices[kFactor],
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

// Two elements of a gradient, as they are in memory: of fp32, or of bf16.
SLUICE_DEVICE float takeFirst(SumPair pair) { return pair.first; }
SLUICE_DEVICE float takeSecond(SumPair pair) { return pair.second; }
SLUICE_DEVICE float takeFirst(uint32_t pair) { return firstBf16(pair); }
SLUICE_DEVICE float takeSecond(uint32_t pair) { return secondBf16(pair); }
SLUICE_DEVICE SumPair joinPair(float first, float second) { return {first, second}; }
SLUICE_DEVICE uint32_t joinPair(uint16_t first, uint16_t second) { return first | uint32_t{second} << 16; }

template <class Element>
using PairOf = std::conditional_t<sizeof(Element) == 4, SumPair, uint32_t>;

SLUICE_DEVICE bool isAdded(const WeightGrad* grad) {
  const GradForm form = load(&grad->form);
  return form == GradForm::kFp32Added || form == GradForm::kBf16Added;
}
SLUICE_DEVICE bool isBf16(const WeightGrad* grad) {
  const GradForm form = load(&grad->form);
  return form == GradForm::kBf16 || form == GradForm::kBf16Added;
}

// This warpgroup's 64 rows of the tile, some columns of which are staged at once.
struct GradPart {
  std::byte* corner;  // in out
  int64_t pitch;
  int rows, columns;  // from there on; may be more than the part has, and below 1
};

// What is there at columns `column` and the one after it; -0 outside of the matrix, which changes no sum.
template <class Element>
SLUICE_DEVICE PairOf<Element> loadPair(const GradPart& part, int row, int column) {
  constexpr Element kNothing = sizeof(Element) == 4 ? static_cast<Element>(-0.F) : Element{0x8000};
  const auto* const from = reinterpret_cast<const Element*>(part.corner + row * part.pitch) + column;
  const int left = row < part.rows ? part.columns - column : 0;
  return joinPair(left > 0 ? load(from) : kNothing, left > 1 ? load(from + 1) : kNothing);
}

// Writes to an area what some sums of this thread make of what was there before.
template <class Element, int kSums>
SLUICE_DEVICE void stageSums(std::byte* area, const float* sum, const PairOf<Element> (&before)[kSums / 2],
                             float alpha) {
  SLUICE_UNROLL
  for (int i = 0; i < kSums; i += 2) {
    auto* const place = reinterpret_cast<PairOf<Element>*>(area + fragmentPlace<sizeof(Element)>(i));
    const float first = takeFirst(before[i / 2]) + alpha * sum[i];
    const float second = takeSecond(before[i / 2]) + alpha * sum[i + 1];
    if constexpr (sizeof(Element) == 4)
      store(place, SumPair{first, second});
    else
      store(place, packBf16(first, second));
  }
}

// Stores or adds this warpgroup's 64 rows of the tile, of elements that are float, or uint16_t for bf16.
// Where TMA adds fp32, it adds to what is there; else this does, before it stores. Afterwards thread 0 of the
// warpgroup may signal them.
template <class Shape, class Element>
SLUICE_DEVICE void storeWeightGrad(const WeightGrad* grad, const NearMatrix* matrices,
                                   ProductMemory<Shape>* memory, const float (&sum)[Shape::kColumns / 2]) {
  constexpr int kElementBytes = sizeof(Element);
  constexpr int kPart = Shape::kRowBytes / kElementBytes;  // columns that are staged at once
  const NearMatrix* const out = &matrices[kOut];
  const int group = mathGroup();
  Staging staging = {memory->staging[group], 0};
  constexpr int kParts = Shape::kColumns / kPart, kSums = kPart / 2;
  SLUICE_LOOP
  for (int part = 0; part < kParts; ++part) {
    // read again for each part: sums leave few registers
    const int row = load(&grad->firstRow) + 64 * group, rowsLeft = load(&grad->endRow) - row;
    const int column = load(&grad->firstColumn) + kPart * part;
    const int expert = load(&grad->expert), endColumn = load(&grad->endColumn);
    if (column >= endColumn) break;
    const int64_t pitch = load(&out->rowPitch);
    const GradPart to = {
        load(&out->data) + expert * load(&out->outerPitch) + row * pitch + kElementBytes * column, pitch,
        rowsLeft, endColumn - column};
    // what lies outside of the matrix is not written
    const bool isBox = load(&out->isMapped) && (rowsLeft >= 64 || load(&grad->endRow) == load(&out->rows)) &&
                       (to.columns >= kPart || endColumn == load(&out->columns));
    const bool addsBox = isBox && load(&grad->form) == GradForm::kFp32Added;
    const bool addsHere = isAdded(grad) && !addsBox;
    const float alpha = load(&grad->alpha);
    PairOf<Element> before[kSums / 2];
    const GradPart read = addsHere ? to : GradPart{nullptr, 0, 0, 0};
    SLUICE_UNROLL
    for (int i = 0; i < kSums; i += 2)
      before[i / 2] = loadPair<Element>(read, fragmentRow(i), fragmentColumn(i));
    std::byte* const staged = stage(&staging, [&sum, &before, part, alpha](std::byte* area) {
      SLUICE_UNROLL
      for (int each = 0; each < kParts; ++each)
        if (each == part) stageSums<Element, kSums>(area, &sum[kSums * each], before, alpha);
    });
    if (!isBox) storePlain<kElementBytes>(to.corner, pitch, staged, to.rows < 64 ? to.rows : 64, to.columns);
    if (!isBox || threadIndex() % 128 != 0) continue;
    if (addsBox)
      addBox(load(&out->map), staged, column, row, expert);
    else
      storeBox(load(&out->map), staged, column, row, expert);
    groupStores();
  }
  endStores();
}

// The whole task for a warpgroup of math. `sum` is 0.
template <class Shape>
SLUICE_DEVICE void runWeightGrad(const WeightGrad* grad, const NearMatrix* matrices,
                                 ProductMemory<Shape>* memory, RingPosition<Shape::kStages>* at,
                                 AbortWatch* watch, float (&sum)[Shape::kColumns / 2]) {
  const int steps = (load(&grad->rows) + Shape::kDepth - 1) / Shape::kDepth;
  if (steps == 0 && isAdded(grad)) return;  // adding 0 would turn a -0 into 0
  const bool isFenced = hasStored(matrices, load(&grad->aIndex), load(&grad->dyIndex));
  multiplyStages<Shape, Major::kMn, Major::kMn>(memory, steps, isFenced, at, watch, sum);
  if (isBf16(grad))
    storeWeightGrad<Shape, uint16_t>(grad, matrices, memory, sum);
  else
    storeWeightGrad<Shape, float>(grad, matrices, memory, sum);
}

}  // namespace sluice::gpu
