// The epilogues of products with an activation: act of gate and up, and its gradient.
//
// A tile of `gmm activation` is half gate columns and half the matching up columns of the weight, so that
// both of an element are sums of one thread. Rounding is that of the CPU's ops, where each bf16 matrix is
// stored: gate and up are rounded before the activation, the gradient of act before that of gate and up; the
// rest is fp32.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/product_plan.h"
#include "ops/gpu/stage_rows.h"

namespace sluice::gpu {

// act = f * up; fSlope is the slope of f. As in ops/cpu/activation_point.h.
struct ActivationPoint {
  float f, fSlope, up;
};

struct Swiglu {
  SLUICE_DEVICE static ActivationPoint at(float gate, float up) {
    const float s = reciprocal(1 + exponential(-gate));
    return {gate * s, s * (1 + gate * (1 - s)), up};
  }
  // The part of a gradient that passes to up.
  SLUICE_DEVICE static float passUp(float /*up*/, float grad) { return grad; }
};

template <class Activation>
SLUICE_DEVICE uint32_t actOf(uint32_t gate, uint32_t up) {
  const ActivationPoint first = Activation::at(firstBf16(gate), firstBf16(up));
  const ActivationPoint second = Activation::at(secondBf16(gate), secondBf16(up));
  return packBf16(first.f * first.up, second.f * second.up);
}

// Of ProductKind::kActivation; by a warpgroup, as storeProduct().
template <class Shape, class Activation>
SLUICE_DEVICE void storeActivation(const Product* product, const Matrix* matrices,
                                   ProductMemory<Shape>* memory, const float (&sum)[Shape::kColumns / 2]) {
  constexpr int kUp = Shape::kColumns / 4;  // the first sum of up
  const Matrix* const out = &matrices[load(&product->out)];
  const uint16_t gateUp = load(&product->gateUp);
  const int firstColumn = load(&product->firstColumn), inter = load(&out->columns);
  const GroupRows rows = groupRows(product);
  Staging staging = {memory->staging[mathGroup()], 0};
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / 128; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= inter) break;
    Pairs gate, up, act;
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) {
      const int at = 32 * part + 2 * i;
      gate[i] = packBf16(sum[at], sum[at + 1]);
      up[i] = packBf16(sum[kUp + at], sum[kUp + at + 1]);
      act[i] = actOf<Activation>(gate[i], up[i]);
    }
    stageRows(&staging, out, rows, {column, inter}, act);
    if (gateUp == kNoMatrix) continue;
    stageRows(&staging, &matrices[gateUp], rows, {column, inter}, gate);
    stageRows(&staging, &matrices[gateUp], rows, {inter + column, 2 * inter}, up);
  }
  endStores();
}

// What becomes of a pair of gate and up, and of the gradient of their act.
struct GradPairs {
  uint32_t gate, up, act;
};
template <class Activation>
SLUICE_DEVICE GradPairs gradOf(uint32_t gate, uint32_t up, uint32_t actGrad) {
  const ActivationPoint first = Activation::at(firstBf16(gate), firstBf16(up));
  const ActivationPoint second = Activation::at(secondBf16(gate), secondBf16(up));
  const float d = firstBf16(actGrad), e = secondBf16(actGrad);
  return {packBf16(d * first.up * first.fSlope, e * second.up * second.fSlope),
          packBf16(Activation::passUp(firstBf16(up), d * first.f),
                   Activation::passUp(secondBf16(up), e * second.f)),
          packBf16(first.f * first.up, second.f * second.up)};
}

// Of ProductKind::kActivationGrad, whose sums are the gradient of act; by a warpgroup, as storeProduct().
template <class Shape, class Activation>
SLUICE_DEVICE void storeActivationGrad(const Product* product, const Matrix* matrices,
                                       ProductMemory<Shape>* memory,
                                       const float (&sum)[Shape::kColumns / 2]) {
  const Matrix* const out = &matrices[load(&product->out)];
  const Matrix* const gateUp = &matrices[load(&product->gateUp)];
  const uint16_t again = load(&product->act);
  const int firstColumn = load(&product->firstColumn), inter = load(&out->columns) / 2;
  const GroupRows rows = groupRows(product);
  Staging staging = {memory->staging[mathGroup()], 0};
  SLUICE_UNROLL
  for (int part = 0; part < Shape::kColumns / 64; ++part) {
    const int column = firstColumn + 64 * part;
    if (column >= inter) break;
    const ColumnRange gateColumns = {column, inter}, upColumns = {inter + column, 2 * inter};
    Pairs gate, up, act;
    loadRows(gateUp, rows, gateColumns, gate);
    loadRows(gateUp, rows, upColumns, up);
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) {
      const int at = 32 * part + 2 * i;
      const GradPairs grad = gradOf<Activation>(gate[i], up[i], packBf16(sum[at], sum[at + 1]));
      gate[i] = grad.gate;
      up[i] = grad.up;
      act[i] = grad.act;
    }
    stageRows(&staging, out, rows, gateColumns, gate);
    stageRows(&staging, out, rows, upColumns, up);
    // computed in any case: else f of all elements would stay in registers until here
    if (again != kNoMatrix) stageRows(&staging, &matrices[again], rows, gateColumns, act);
  }
  endStores();
}

}  // namespace sluice::gpu
