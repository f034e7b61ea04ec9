// A task on its way from the warp that loads to those that multiply, in shared memory.
//
// In global memory what a task says lies behind a chain of pointers, at each of which a reader waits for some
// hundred nanoseconds, for every acquire empties the caches. The warp that loads runs ahead of those that
// multiply, so it brings all that they need.
#pragma once

#include "ops/gpu/hw.h"
#include "runtime/abi/gpu/chain_plan.h"

namespace sluice::gpu {

// What a matrix is for in a task.
enum Use : int { kA = 0, kFactor = 1, kOut = 2, kGateUp = 3, kWeightedAct = 4 };
inline constexpr int kUses = 5;

struct NearMatrix : MatrixHead {
  const TensorMap* map;  // in global memory
};

struct TaskRecord {
  uint32_t number;  // of the task; kNoTask: there are no more
  uint32_t ended;   // warpgroups that have ended a task of this record, counted on over tasks
  alignas(8) ChainTask task;
  NearMatrix matrices[kUses];  // those that the work has
  union {                      // by the task's kind
    Product product;
    WeightGrad weightGrad;
  };
};

// Numbers of matrices whose maps the block has fenced, each at its remainder.
inline constexpr int kFencedMaps = 32;
struct FencedMaps {
  uint16_t numbers[kFencedMaps];
};

// By one thread.
SLUICE_DEVICE void initFencedMaps(FencedMaps* fenced) {
  for (uint16_t& number : fenced->numbers) store(&number, kNoMatrix);
}

// Copies a value from global to shared memory. By the warp, which then calls syncWarp().
template <class T>
SLUICE_DEVICE void bring(void* to, const T* from) {
  static_assert(sizeof(T) % 8 == 0);
  for (int i = laneIndex(); i < int{sizeof(T) / 8}; i += 32)
    store(static_cast<uint64_t*>(to) + i, load(reinterpret_cast<const uint64_t*>(from) + i));
}

// The number of the matrix that the task has for that use.
SLUICE_DEVICE uint16_t matrixFor(const TaskRecord* record, int use) {
  const Product* const product = &record->product;
  const WeightGrad* const grad = &record->weightGrad;
  const bool isProduct = load(&record->task.kind) == TaskKind::kProduct;
  switch (use) {
    case kA:
      return load(isProduct ? &product->a : &grad->a);
    case kFactor:
      return load(isProduct ? &product->weight : &grad->dy);
    case kOut:
      return load(isProduct ? &product->out : &grad->out);
    case kGateUp:
      return isProduct ? load(&product->gateUp) : kNoMatrix;
    case kWeightedAct:
      return isProduct ? load(&product->weightedAct) : kNoMatrix;
    default:
      return kNoMatrix;
  }
}

// Brings the matrices of a record whose work is there, and fences their maps. By the warp.
SLUICE_DEVICE void bringMatrices(TaskRecord* record, const Matrix* matrices, FencedMaps* fenced) {
  constexpr int kWords = sizeof(MatrixHead) / 8;
  static_assert(sizeof(MatrixHead) % 8 == 0 && kUses * kWords <= 32);
  const int use = laneIndex() / kWords, word = laneIndex() % kWords;
  if (const uint16_t number = matrixFor(record, use); number != kNoMatrix) {
    const Matrix* const matrix = &matrices[number];
    NearMatrix* const near = &record->matrices[use];
    store(reinterpret_cast<uint64_t*>(static_cast<MatrixHead*>(near)) + word,
          load(reinterpret_cast<const uint64_t*>(&matrix->head) + word));
    if (word == 0) store(&near->map, &matrix->map);
  }
  syncWarp();
  for (int each = 0; each < kUses; ++each) {
    const uint16_t number = matrixFor(record, each);
    if (number == kNoMatrix || !load(&record->matrices[each].isMapped)) continue;
    uint16_t* const known = &fenced->numbers[number % kFencedMaps];
    if (laneIndex() != 0 || load(known) == number) continue;
    fenceMap(load(&record->matrices[each].map));
    store(known, number);
  }
}

// Fills a record that is free with a task that is ready. By the warp.
SLUICE_DEVICE void bringTask(TaskRecord* record, const Chain& chain, uint32_t number, FencedMaps* fenced) {
  if (laneIndex() == 0) store(&record->number, number);
  bring(&record->task, &chain.tasks[number]);
  syncWarp();
  const TaskKind kind = load(&record->task.kind);
  const uint32_t work = load(&record->task.work);
  if (kind == TaskKind::kRowWork) return;
  if (kind == TaskKind::kProduct)
    bring(&record->product, &chain.products[work]);
  else
    bring(&record->weightGrad, &chain.weightGrads[work]);
  syncWarp();
  bringMatrices(record, chain.matrices, fenced);
  syncWarp();
}

}  // namespace sluice::gpu
