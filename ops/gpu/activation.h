// The epilogues of products with an activation: act of gate and up, and its gradient.
//
// A tile of `gmm activation` is half gate columns and half the matching up columns of the weight, so that
// both of an element are sums of one thread. Without a gate, all columns are those that the activation reads,
// and up is 1. Numbers are rounded where the CPU's ops store a bf16 matrix: gate and up before the
// activation, the gradient of act before the gradient of gate and up; the rest is fp32.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/scalar.h"
#include "ops/gpu/stage_rows.h"
#include "runtime/abi/gpu/product_plan.h"

namespace sluice::gpu {

// Pairs between two looks at which activation it is: nvcc does what all activations have in common before it
// looks, and so needs registers for that.
inline constexpr int kPairsAtOnce = 4;

// act of pairs of gate and up, by the product's activation.
template <class Shape, bool kHasGate>
SLUICE_DEVICE void activate(const Product* product, const Pairs& gate, const Pairs& up, Pairs& act) {
  SLUICE_UNROLL
  for (int begin = 0; begin < 16; begin += kPairsAtOnce) {
    const auto body = [&gate, &up, &act, begin](const auto& function, auto hasGate) {
      if constexpr (hasGate.value == kHasGate) {
        SLUICE_UNROLL
        for (int i = begin; i < begin + kPairsAtOnce; ++i) {
          const auto first = function.at(firstBf16(gate[i]), kHasGate ? firstBf16(up[i]) : 1);
          const auto second = function.at(secondBf16(gate[i]), kHasGate ? secondBf16(up[i]) : 1);
          act[i] = packBf16(first.f * first.u, second.f * second.u);
        }
      }
    };
    ops::withActivation<Scalar>(chosenActivation<Shape::kActivation>(product), load(&product->limit), body);
  }
}

template <class Shape, bool kHasGate>
SLUICE_DEVICE void storeActivationBy(const Product* product, const NearMatrix* matrices,
                                     ProductMemory<Shape>* memory, const TilePairs<Shape>& tile) {
  constexpr int kColumns = Shape::kColumns / (kHasGate ? 2 : 1);  // of act
  constexpr int kUp = Shape::kColumns / 8;                        // the first pair of up
  constexpr int kParts = kColumns / 64;
  const NearMatrix* const out = &matrices[kOut];
  const NearMatrix* const gateUp = &matrices[kGateUp];
  const bool keepsGateUp = load(&product->gateUp) != kNoMatrix;
  const int firstColumn = load(&product->firstColumn), inter = load(&out->columns);
  const int endColumn = load(&product->endColumn);
  const GroupRows rows = groupRows(product);
  Staging staging = {memory->staging[mathGroup()], 0};
  SLUICE_LOOP
  for (int part = 0; part < kParts; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= endColumn) break;
    Pairs gate, up, act;
    takePart<0, kParts>(tile, part, gate);
    if constexpr (kHasGate) takePart<kUp, kParts>(tile, part, up);
    activate<Shape, kHasGate>(product, gate, up, act);
    stageRows(&staging, out, rows, {column, endColumn}, act);
    if (!keepsGateUp) continue;
    stageRows(&staging, gateUp, rows, {column, endColumn}, gate);
    if constexpr (kHasGate) stageRows(&staging, gateUp, rows, {inter + column, inter + endColumn}, up);
  }
  endStores();
}

// Stores the warpgroup's rows of a tile of ProductKind::kActivation, like storeProduct().
template <class Shape>
SLUICE_DEVICE void storeActivation(const Product* product, const NearMatrix* matrices,
                                   ProductMemory<Shape>* memory, const TilePairs<Shape>& tile) {
  if (isGated<Shape>(product))
    storeActivationBy<Shape, true>(product, matrices, memory, tile);
  else
    storeActivationBy<Shape, false>(product, matrices, memory, tile);
}

// These belong to the two rows that a thread has (hw.h).
struct RowWeights {
  float weight[2];
  float grad[2];  // sums over the columns of this thread so far
};

// The gradients of gate and up of an element, of which the gradient of act is `grad`, and its act.
struct ElementGrad {
  float gate, up, act;
};
template <class Function>
SLUICE_DEVICE ElementGrad gradAt(const Function& function, float gate, float up, float grad, float weight,
                                 float* rowSum) {
  const auto point = function.at(gate, up);
  const float weighted = weight * grad;
  *rowSum += grad * point.f * point.u;
  return {weighted * point.u * point.fSlope, function.passUp(up, weighted * point.f), point.f * point.u};
}

// Replaces pairs of gate and up by their gradients, and pairs of the gradient of act by act, which is
// weighted as it would be read after it was stored.
template <class Shape, bool kHasGate>
SLUICE_DEVICE void differentiate(const Product* product, Pairs& gate, Pairs& up, Pairs& act,
                                 RowWeights* weights) {
  SLUICE_UNROLL
  for (int begin = 0; begin < 16; begin += kPairsAtOnce) {
    const auto body = [&gate, &up, &act, weights, begin](const auto& function, auto hasGate) {
      if constexpr (hasGate.value == kHasGate) {
        SLUICE_UNROLL
        for (int i = begin; i < begin + kPairsAtOnce; ++i) {
          const float weight = weights->weight[i % 2];
          float* const rowSum = &weights->grad[i % 2];
          const ElementGrad first = gradAt(function, firstBf16(gate[i]), kHasGate ? firstBf16(up[i]) : 1,
                                           firstBf16(act[i]), weight, rowSum);
          const ElementGrad second = gradAt(function, secondBf16(gate[i]), kHasGate ? secondBf16(up[i]) : 1,
                                            secondBf16(act[i]), weight, rowSum);
          gate[i] = packBf16(first.gate, second.gate);
          if constexpr (kHasGate) up[i] = packBf16(first.up, second.up);
          const uint32_t stored = packBf16(first.act, second.act);
          act[i] = packBf16(weight * firstBf16(stored), weight * secondBf16(stored));
        }
      }
    };
    ops::withActivation<Scalar>(chosenActivation<Shape::kActivation>(product), load(&product->limit), body);
  }
}

SLUICE_DEVICE RowWeights loadRowWeights(const Product* product, GroupRows rows) {
  const float* const weight = load(&product->rowWeight);
  RowWeights weights = {{1, 1}, {0, 0}};
  SLUICE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int row = fragmentRow(2 * i);
    if (weight != nullptr && row < rows.count) weights.weight[i] = load(&weight[rows.first + row]);
  }
  return weights;
}

SLUICE_DEVICE float shuffleFloat(float value, int lane) {
  return __builtin_bit_cast(float, shuffle(__builtin_bit_cast(uint32_t, value), lane));
}

// Four threads have the columns of a row.
SLUICE_DEVICE void storeRowWeightGrads(const Product* product, GroupRows rows, const RowWeights& weights) {
  float* const grads = load(&product->rowWeightGrad);
  if (grads == nullptr) return;
  const bool isAdded = load(&product->addsRowWeightGrad);
  SLUICE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float sum = weights.grad[i];
    sum += shuffleFloat(sum, laneIndex() ^ 1);
    sum += shuffleFloat(sum, laneIndex() ^ 2);
    const int row = fragmentRow(2 * i);
    float* const to = &grads[rows.first + row];
    if (threadIndex() % 4 == 0 && row < rows.count) store(to, isAdded ? load(to) + sum : sum);
  }
}

template <class Shape, bool kHasGate>
SLUICE_DEVICE void storeActivationGradBy(const Product* product, const NearMatrix* matrices,
                                         ProductMemory<Shape>* memory, const TilePairs<Shape>& tile) {
  const NearMatrix* const out = &matrices[kOut];
  const NearMatrix* const gateUp = &matrices[kGateUp];
  const bool storesWeighted = load(&product->weightedAct) != kNoMatrix;
  const int firstColumn = load(&product->firstColumn), inter = load(&out->columns) / (kHasGate ? 2 : 1);
  const int endColumn = load(&product->endColumn);
  const GroupRows rows = groupRows(product);
  RowWeights weights = loadRowWeights(product, rows);
  Staging staging = {memory->staging[mathGroup()], 0};
  constexpr int kParts = Shape::kColumns / 64;
  SLUICE_LOOP
  for (int part = 0; part < kParts; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= endColumn) break;
    const ColumnRange gateColumns = {column, endColumn}, upColumns = {inter + column, inter + endColumn};
    Pairs gate, up, act;
    loadRows(gateUp, rows, gateColumns, gate);
    if constexpr (kHasGate) loadRows(gateUp, rows, upColumns, up);
    takePart<0, kParts>(tile, part, act);
    differentiate<Shape, kHasGate>(product, gate, up, act, &weights);
    stageRows(&staging, out, rows, gateColumns, gate);
    if constexpr (kHasGate) stageRows(&staging, out, rows, upColumns, up);
    // computed in any case: else f of all elements would stay in registers until here
    if (storesWeighted) stageRows(&staging, &matrices[kWeightedAct], rows, gateColumns, act);
  }
  storeRowWeightGrads(product, rows, weights);
  endStores();
}

// Stores the warpgroup's rows of a tile of ProductKind::kActivationGrad, whose sums are the gradient of act,
// like storeProduct().
template <class Shape>
SLUICE_DEVICE void storeActivationGrad(const Product* product, const NearMatrix* matrices,
                                       ProductMemory<Shape>* memory, const TilePairs<Shape>& tile) {
  if (isGated<Shape>(product))
    storeActivationGradBy<Shape, true>(product, matrices, memory, tile);
  else
    storeActivationGradBy<Shape, false>(product, matrices, memory, tile);
}

}  // namespace sluice::gpu
