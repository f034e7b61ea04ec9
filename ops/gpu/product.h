// One tile of a grouped product: out[rows, columns] = a[rows, k] * weight[expert], bf16 with fp32 sums.
//
// A tile is up to 128 rows and kColumns columns. A stage of the ring holds 64 k of both operands. Edges need
// no care: outside of a matrix TensorMaps read 0 and write nothing. Rows after those of the task are
// another's: what is computed of them is never stored. Two warpgroups multiply 64 rows each, and never wait
// for each other. Epilogues that do more than to store the sums are in activation.h.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/product_plan.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/stage_rows.h"

namespace sluice::gpu {

template <int kColumns_, int kStages_>
struct ProductShape {
  static constexpr int kColumns = kColumns_;  // 128 or 256
  static constexpr int kStages = kStages_;
  static constexpr int kRows = 128;
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
};

// Where the second half of a tile's columns begins in the weight: after the first half, or at the columns of
// up that belong to those of gate.
template <class Shape>
SLUICE_DEVICE int secondHalf(const Product* product, const Matrix* matrices) {
  const bool isGated = load(&product->kind) == ProductKind::kActivation;
  return load(&product->firstColumn) +
         (isGated ? load(&matrices[load(&product->out)].columns) : Shape::kColumns / 2);
}

// Loads all stages of a product. One thread, after it knows that `a` is there. False: no stage became free.
template <class Shape>
SLUICE_DEVICE bool loadProduct(const Product* product, const Matrix* matrices, ProductMemory<Shape>* memory,
                               RingPosition<Shape::kStages>* at, uint64_t limit) {
  constexpr int kHalf = Shape::kColumns / 128;  // areas
  const TensorMap* const a = &matrices[load(&product->a)].map;
  const TensorMap* const weight = &matrices[load(&product->weight)].map;
  const Major major = load(&product->weightMajor);
  const int firstRow = load(&product->firstRow), rows = load(&product->rows);
  const int halves[2] = {load(&product->firstColumn), secondHalf<Shape>(product, matrices)};
  const int expert = load(&product->expert), depth = load(&product->k);
  for (int k = 0; k < depth; k += Shape::kDepth) {
    if (!awaitEmpty(&memory->ring, *at, limit)) return false;
    Barrier* const full = &memory->ring.full[at->stage];
    std::byte* const stage = memory->stages[at->stage];
    arriveExpecting(full, Shape::kStageBytes);
    copyBox(stage, a, full, k, firstRow, 0, rows);
    SLUICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::byte* const areas = stage + Shape::kABytes + half * kHalf * Shape::kAreaBytes;
      if (major == Major::kK) {
        copyBox(areas, weight, full, k, halves[half], expert, 64 * kHalf);
        continue;
      }
      for (int i = 0; i < kHalf; ++i)
        copyBox(areas + i * Shape::kAreaBytes, weight, full, halves[half] + 64 * i, k, expert, Shape::kDepth);
    }
    at->advance();
  }
  return true;
}

// Adds to the sums of this warpgroup's 64 rows those of `steps` stages, at least one.
template <class Shape, Major kA, Major kWeight>
SLUICE_DEVICE void multiplyStages(ProductMemory<Shape>* memory, int steps, RingPosition<Shape::kStages>* at,
                                  AbortWatch* watch, float (&sum)[Shape::kColumns / 2]) {
  int previous = 0;
  for (int step = 0; step < steps; ++step) {
    awaitFull(&memory->ring, *at, watch);
    syncWarp();  // the loop may leave lanes apart
    const std::byte* const a = memory->stages[at->stage] + mathGroup() * Shape::kAreaBytes;
    const std::byte* const weight = memory->stages[at->stage] + Shape::kABytes;
    constexpr uint32_t kAStep = kA == Major::kK ? 2 : Shape::kRowBytes;  // bytes per k
    constexpr uint32_t kWeightStep = kWeight == Major::kK ? 2 : Shape::kRowBytes;
    fenceProducts();
    SLUICE_UNROLL
    for (int k = 0; k < Shape::kDepth; k += 16)
      multiply<Shape::kColumns, kA, kWeight>(
          sum, describe(a + k * kAStep, kA, kA == Major::kK ? 0 : Shape::kAreaBytes),
          describe(weight + k * kWeightStep, kWeight, Shape::kAreaBytes), true);
    groupProducts();
    waitProducts<1>();  // the stage before this one has been read
    if (step > 0) release(&memory->ring, previous);
    previous = at->stage;
    at->advance();
  }
  waitProducts<0>();
  release(&memory->ring, previous);
}

template <class Shape>
SLUICE_DEVICE void multiplyTile(const Product* product, ProductMemory<Shape>* memory,
                                RingPosition<Shape::kStages>* at, AbortWatch* watch,
                                float (&sum)[Shape::kColumns / 2]) {
  const int steps = (load(&product->k) + Shape::kDepth - 1) / Shape::kDepth;
  if (load(&product->weightMajor) == Major::kK)
    multiplyStages<Shape, Major::kK, Major::kK>(memory, steps, at, watch, sum);
  else
    multiplyStages<Shape, Major::kK, Major::kMn>(memory, steps, at, watch, sum);
}

// Stores this warpgroup's rows of the tile. Afterwards thread 0 of the warpgroup may signal them.
template <class Shape>
SLUICE_DEVICE void storeProduct(const Product* product, const Matrix* matrices, ProductMemory<Shape>* memory,
                                const float (&sum)[Shape::kColumns / 2]) {
  const Matrix* const out = &matrices[load(&product->out)];
  const int firstColumn = load(&product->firstColumn), columns = load(&out->columns);
  const GroupRows rows = groupRows(product);
  Staging staging = {memory->staging[mathGroup()], 0};
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / 64; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= columns) break;
    Pairs pairs;
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) pairs[i] = packBf16(sum[32 * part + 2 * i], sum[32 * part + 2 * i + 1]);
    stageRows(&staging, out, rows, {column, columns}, pairs);
  }
  endStores();
}

}  // namespace sluice::gpu
