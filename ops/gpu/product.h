// One tile of a grouped product: out[rows, columns] = a[rows, k] * weight[expert], bf16 with fp32 sums.
//
// A tile is up to 128 rows and kColumns columns. A stage of the ring holds 64 k of both operands. Edges need
// no care: outside of a matrix TensorMaps read 0 and write nothing. Rows after those of the task are
// another's: what is computed of them is never stored. Two warpgroups multiply 64 rows each, and never wait
// for each other.
#pragma once

#include "ops/gpu/chain_plan.h"
#include "ops/gpu/hw.h"
#include "ops/gpu/ring.h"

// sum[] stays in registers only where every index is a constant.
#if defined(__CUDACC__)
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL
#endif

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
  std::byte staging[2][2][Shape::kAreaBytes];  // per warpgroup, two of 64 rows and 64 columns of results
  Ring<Shape::kStages> ring;                   // filled by one arrival, emptied by 8 warps
};

// Loads all stages of a product. One thread, after it knows that `a` is there. False: no stage became free.
template <class Shape>
SLUICE_DEVICE bool loadProduct(const Product* product, const Matrix* matrices, ProductMemory<Shape>* memory,
                               RingPosition<Shape::kStages>* at, uint64_t limit) {
  const TensorMap* const a = &matrices[load(&product->a)].map;
  const TensorMap* const weight = &matrices[load(&product->weight)].map;
  const Major major = load(&product->weightMajor);
  const int firstRow = load(&product->firstRow), rows = load(&product->rows);
  const int firstColumn = load(&product->firstColumn), expert = load(&product->expert);
  const int depth = load(&product->k);
  for (int k = 0; k < depth; k += Shape::kDepth) {
    if (!awaitEmpty(&memory->ring, *at, limit)) return false;
    Barrier* const full = &memory->ring.full[at->stage];
    std::byte* const stage = memory->stages[at->stage];
    arriveExpecting(full, Shape::kStageBytes);
    copyBox(stage, a, full, k, firstRow, 0, rows);
    if (major == Major::kK) {
      copyBox(stage + Shape::kABytes, weight, full, k, firstColumn, expert, Shape::kColumns);
    } else {
      for (int i = 0; i < Shape::kColumns / 64; ++i)
        copyBox(stage + Shape::kABytes + i * Shape::kAreaBytes, weight, full, firstColumn + 64 * i, k, expert,
                Shape::kDepth);
    }
    at->advance();
  }
  return true;
}

SLUICE_DEVICE int mathGroup() { return threadIndex() / 128 - 1; }

// The sums of this warpgroup's 64 rows over `steps` stages, at least one.
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
          describe(weight + k * kWeightStep, kWeight, Shape::kAreaBytes), step + k > 0);
    groupProducts();
    waitProducts<1>();  // the stage before this one has been read
    if (step > 0) release(&memory->ring, previous);
    previous = at->stage;
    at->advance();
  }
  waitProducts<0>();
  release(&memory->ring, previous);
}

struct alignas(16) Part {
  uint64_t columns[2];  // 8 of bf16
};

// The last rows of a warpgroup, which are no whole box: a store of 16 rows would reach into the next slot.
// They are rows `first` and on of `staged` (64 columns from `column` on), whose row 0 goes to `row` of out.
template <class Shape>
SLUICE_DEVICE void storeLastRows(const Matrix* out, const std::byte* staged, int first, int count, int row,
                                 int column) {
  std::byte* const data = load(&out->data);
  const int64_t pitch = load(&out->rowPitch);
  const int columns = load(&out->columns) - column;  // left
  for (int part = threadIndex() % 128; part < count * 8; part += 128) {
    const int at = part / 8, begin = part % 8 * 8;  // 8 columns are 16 bytes
    const std::byte* const from = staged + swizzled(first + at, 2 * begin);
    std::byte* const to = data + (row + first + at) * pitch + 2 * (column + begin);
    if (begin + 8 <= columns)
      store(reinterpret_cast<Part*>(to), load(reinterpret_cast<const Part*>(from)));
    else
      for (int i = 0; begin + i < columns; ++i)
        store(reinterpret_cast<uint16_t*>(to) + i, load(reinterpret_cast<const uint16_t*>(from) + i));
  }
}

// Stores this warpgroup's rows of the tile. Afterwards thread 0 of the warpgroup may signal them.
template <class Shape>
SLUICE_DEVICE void storeProduct(const Product* product, const Matrix* matrices, ProductMemory<Shape>* memory,
                                const float (&sum)[Shape::kColumns / 2]) {
  const Matrix* const out = &matrices[load(&product->out)];
  const int group = mathGroup();
  const bool isFirst = threadIndex() % 128 == 0;
  const int row = load(&product->firstRow) + 64 * group;
  const int left = load(&product->rows) - 64 * group;
  const int rows = left < 0 ? 0 : left > 64 ? 64 : left;
  const int boxRows = rows / 16 * 16;
  const int firstColumn = load(&product->firstColumn), columns = load(&out->columns);
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / 64; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= columns) break;
    std::byte* const staged = memory->staging[group][part % 2];
    if (isFirst) waitStoresRead<1>();  // that of two parts ago has left this memory
    syncNamed(1 + group, 128);
    SLUICE_UNROLL
    for (int i = 0; i < 32; i += 2)
      store(reinterpret_cast<uint32_t*>(staged + swizzled(fragmentRow(i), 2 * fragmentColumn(i))),
            packBf16(sum[32 * part + i], sum[32 * part + i + 1]));
    fenceProxyAsync();
    syncNamed(1 + group, 128);
    if (isFirst) {
      for (int i = 0; i < boxRows; i += 16)
        storeBox(&out->map, staged + i * Shape::kRowBytes, column, row + i, 0);
      groupStores();
    }
    storeLastRows<Shape>(out, staged, boxRows, rows - boxRows, row, column);
  }
  syncNamed(1 + group, 128);  // plain stores of all threads
  if (isFirst) waitStores<0>();
}

}  // namespace sluice::gpu
