// One tile of a grouped product: out[rows, columns] = a[rows, k] * weight[expert], bf16 with fp32 sums.
//
// A tile is up to 128 rows and kColumns columns. A stage of the ring holds 64 k of both operands. Edges need
// no care: outside of a matrix loads read 0 and stores write nothing. Rows after the task's rows belong to
// another task: what is computed of them is never stored. Two warpgroups multiply 64 rows each, and never
// wait for each other. Epilogues that do more than to store the sums are in activation.h.
#pragma once

#include <iterator>

#include "ops/gpu/hw.h"
#include "ops/gpu/load_box.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/scalar.h"
#include "ops/gpu/stage_rows.h"
#include "runtime/abi/gpu/product_plan.h"
#include "runtime/base/activation_info.h"

namespace sluice::gpu {

// With kAnyActivation the kernel reads each task's activation, and has the code of all activations.
template <int kColumns_, int kStages_, int kActivation_ = kAnyActivation>
struct ProductShape {
  static constexpr int kColumns = kColumns_;  // 128 or 256
  static constexpr int kStages = kStages_;
  static constexpr int kActivation = kActivation_;
  static constexpr int kRows = kTileRows;
  static constexpr int kDepth = 64;  // k of a stage
  static constexpr uint32_t kRowBytes = 128;
  static constexpr uint32_t kAreaBytes = 64 * kRowBytes;  // 64 rows or columns of 64 k
  static constexpr uint32_t kABytes = kRows / 64 * kAreaBytes;
  static constexpr uint32_t kStageBytes = kABytes + kColumns / 64 * kAreaBytes;
};

template <class Shape>
struct alignas(1024) ProductMemory {  // shared
  std::byte stages[Shape::kStages][Shape::kStageBytes];
  std::byte staging[2][2][kStagedBytes];  // per warpgroup (stage_rows.h)
  Ring<Shape::kStages> ring;              // filled by one arrival, emptied by 8 warps
  Operands operands;                      // of the task that is loaded
};

// Bit k: activation k has a gate. A number, because kernels cannot read a table of the host.
inline constexpr uint32_t kGated = [] {
  uint32_t bits = 0;
  for (uint32_t kind = 0; kind < std::size(kActivations); ++kind)
    bits |= uint32_t{kActivations[kind].isGated()} << kind;
  return bits;
}();
template <class Shape>
SLUICE_DEVICE bool isGated(const Product* product) {
  return (kGated >> static_cast<uint32_t>(chosenActivation<Shape::kActivation>(product)) & 1) != 0;
}

// Whether the second half of a tile's columns are columns of up.
template <class Shape>
SLUICE_DEVICE bool hasUp(const Product* product) {
  return load(&product->kind) == ProductKind::kActivation && isGated<Shape>(product);
}

// Where the second half of a tile's columns begins in the weight: after the first half, or at the columns of
// up that belong to the tile's columns of gate.
template <class Shape>
SLUICE_DEVICE int secondHalf(const Product* product, const NearMatrix* matrices) {
  return load(&product->firstColumn) +
         (hasUp<Shape>(product) ? load(&matrices[kOut].columns) : Shape::kColumns / 2);
}

// By lane 0 of the warp that loads.
template <class Shape>
SLUICE_DEVICE void setOperands(const Product* product, const NearMatrix* matrices, Operands* operands) {
  const int firstRow = load(&product->firstRow), rows = load(&product->rows);
  const int firstColumn = load(&product->firstColumn);
  const Major major = load(&product->weightMajor);
  const int boxRows = major == Major::kK ? Shape::kColumns / 2 : Shape::kDepth;
  setOperand(&operands->each[0], {.matrix = &matrices[kA],
                                  .outer = 0,
                                  .major = Major::kK,
                                  .boxes = 1,
                                  .boxRows = Shape::kRows,
                                  .begins = {firstRow, firstRow},
                                  .rows = rows,
                                  .rowIndex = load(&product->rowIndex),
                                  .indexEnd = firstRow + rows,
                                  .divisor = load(&product->divisor)});
  setOperand(&operands->each[1], {.matrix = &matrices[kFactor],
                                  .outer = load(&product->expert),
                                  .major = major,
                                  .boxes = Shape::kColumns / boxRows,
                                  .boxRows = boxRows,
                                  .begins = {firstColumn, secondHalf<Shape>(product, matrices)},
                                  .rows = boxRows});
  store(&operands->k, load(&product->k));
}

// Loads all stages of a task whose operands are set. By a warp that knows that they are there. False: no
// stage became free.
template <class Shape>
SLUICE_DEVICE bool loadStages(ProductMemory<Shape>* memory, RingPosition<Shape::kStages>* at,
                              uint64_t limit) {
  Operands* const operands = &memory->operands;
  NamedRows rows;
  readIndex(operands, 0, &rows);
  if (load(&operands->each[0].way) == LoadWay::kParts && !haveOwnSources(operands))
    setSources(operands, rows);
  SLUICE_LOOP
  for (int k = 0; k < load(&operands->k); k += Shape::kDepth, at->advance()) {
    if (!awaitEmptyByWarp(&memory->ring, *at, limit)) return false;
    fillStage(memory->stages[at->stage()], Shape::kABytes, &memory->ring.full[at->stage()], operands, k,
              &rows);
  }
  return true;
}

// Whether some of what is multiplied is brought otherwise than by TMA.
SLUICE_DEVICE bool hasStored(const NearMatrix* matrices, const int32_t* aIndex, const int32_t* factorIndex) {
  return !isInBoxes(&matrices[kA], aIndex) || !isInBoxes(&matrices[kFactor], factorIndex);
}

// Adds the products of `steps` stages to the sums of this warpgroup's 64 rows.
template <class Shape, Major kMajorA, Major kMajorWeight>
SLUICE_DEVICE void multiplyStages(ProductMemory<Shape>* memory, int steps, bool isFenced,
                                  RingPosition<Shape::kStages>* at, AbortWatch* watch,
                                  float (&sum)[Shape::kColumns / 2]) {
  if (steps == 0) return;  // there is no stage to release
  int previous = 0;
  for (int step = 0; step < steps; ++step) {
    awaitFull(&memory->ring, *at, watch);
    // products read what other threads have stored
    if (isFenced) fenceProxyAsyncShared();
    syncWarp();  // the loop may leave lanes apart
    const std::byte* const a = memory->stages[at->stage()] + mathGroup() * Shape::kAreaBytes;
    const std::byte* const weight = memory->stages[at->stage()] + Shape::kABytes;
    constexpr uint32_t kAStep = kMajorA == Major::kK ? 2 : Shape::kRowBytes;  // bytes per k
    constexpr uint32_t kWeightStep = kMajorWeight == Major::kK ? 2 : Shape::kRowBytes;
    fenceProducts();
    SLUICE_UNROLL
    for (int k = 0; k < Shape::kDepth; k += 16)
      multiply<Shape::kColumns, kMajorA, kMajorWeight>(
          sum, describe(a + k * kAStep, kMajorA, kMajorA == Major::kK ? 0 : Shape::kAreaBytes),
          describe(weight + k * kWeightStep, kMajorWeight, Shape::kAreaBytes), true);
    groupProducts();
    waitProducts<1>();  // the stage before this one has been read
    if (step > 0) release(&memory->ring, previous);
    previous = at->stage();
    at->advance();
  }
  waitProducts<0>();
  release(&memory->ring, previous);
}

template <class Shape>
SLUICE_DEVICE void multiplyTile(const Product* product, const NearMatrix* matrices,
                                ProductMemory<Shape>* memory, RingPosition<Shape::kStages>* at,
                                AbortWatch* watch, float (&sum)[Shape::kColumns / 2]) {
  const int steps = (load(&product->k) + Shape::kDepth - 1) / Shape::kDepth;
  const bool isFenced = hasStored(matrices, load(&product->rowIndex), nullptr);
  if (load(&product->weightMajor) == Major::kK)
    multiplyStages<Shape, Major::kK, Major::kK>(memory, steps, isFenced, at, watch, sum);
  else
    multiplyStages<Shape, Major::kK, Major::kMn>(memory, steps, isFenced, at, watch, sum);
}

// Pairs of a tile's columns in a thread's fragment, by 64 columns as in Pairs.
template <class Shape>
using TilePairs = uint32_t[Shape::kColumns / 4];

// What a product gives: sum * alpha + bias, rounded to bf16. All that follows is made of that, which needs
// half as many registers as the sums.
template <class Shape>
SLUICE_DEVICE void packSums(const Product* product, const NearMatrix* matrices,
                            const float (&sum)[Shape::kColumns / 2], TilePairs<Shape>& pairs) {
  constexpr int kHalf = Shape::kColumns / 4;  // sums of half of the columns
  SLUICE_UNROLL
  for (int half = 0; half < 2; ++half) {
    syncWarp();  // else what both halves need is loaded at once, into registers that there are not
    const float alpha = load(&product->alpha);
    const uint16_t* const bias = load(&product->bias);
    const int begin = half == 0 ? load(&product->firstColumn) : secondHalf<Shape>(product, matrices);
    const int columns = bias == nullptr ? 0 : load(&matrices[kOut].columns);
    const int end = half == 1 && hasUp<Shape>(product) ? 2 * columns : columns;
    SLUICE_UNROLL
    for (int i = half * kHalf; i < (half + 1) * kHalf; i += 4) {
      const int column = begin + fragmentColumn(i % kHalf);
      // without a bias -0 is added, which changes nothing: 0 would turn a -0 into 0
      const float first = column < end ? firstBf16(load(&bias[column])) : -0.F;
      const float second = column + 1 < end ? firstBf16(load(&bias[column + 1])) : -0.F;
      pairs[i / 2] = packBf16(sum[i] * alpha + first, sum[i + 1] * alpha + second);
      pairs[i / 2 + 1] = packBf16(sum[i + 2] * alpha + first, sum[i + 3] * alpha + second);
    }
  }
}

// The 64 columns of a tile that are number `part` of those from pair `kFirst` on. Which they are is selected,
// so that loops over parts stay loops.
template <int kFirst, int kParts, int kPairs>
SLUICE_DEVICE void takePart(const uint32_t (&tile)[kPairs], int part, Pairs& pairs) {
  SLUICE_UNROLL
  for (int i = 0; i < 16; ++i) {
    pairs[i] = tile[kFirst + i];
    SLUICE_UNROLL
    for (int other = 1; other < kParts; ++other)
      pairs[i] = part == other ? tile[kFirst + 16 * other + i] : pairs[i];
  }
}

// Stores this warpgroup's rows of the tile. Afterwards thread 0 of the warpgroup may signal them.
template <class Shape>
SLUICE_DEVICE void storeProduct(const Product* product, const NearMatrix* matrices,
                                ProductMemory<Shape>* memory, const TilePairs<Shape>& tile) {
  const NearMatrix* const out = &matrices[kOut];
  const int firstColumn = load(&product->firstColumn), columns = load(&product->endColumn);
  const GroupRows rows = groupRows(product);
  Staging staging = {memory->staging[mathGroup()], 0};
  constexpr int kParts = Shape::kColumns / 64;
  SLUICE_LOOP
  for (int part = 0; part < kParts; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= columns) break;
    Pairs pairs;
    takePart<0, kParts>(tile, part, pairs);
    stageRows(&staging, out, rows, {column, columns}, pairs);
  }
  endStores();
}

}  // namespace sluice::gpu
