// RowOp::kActivation and kActivationGrad: activations that are no part of a product (those: activation.h).
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/row_numbers.h"
#include "ops/gpu/scalar.h"
#include "runtime/abi/gpu/row_plan.h"

namespace sluice::gpu {

// A part of gate and up, which lie side by side in a row of gate_up.
struct GatePart {
  Part gate, up;
  bool hasUp;
  SLUICE_DEVICE float upAt(int n) const { return hasUp ? Bf16::unpackValue(up, n) : 1; }
};
SLUICE_DEVICE GatePart loadGatePart(const std::byte* row, int piece, int columns, bool hasUp) {
  GatePart part = {loadPart<Bf16>(row, piece, columns), {}, hasUp};
  if (hasUp) part.up = loadPart<Bf16>(row + columns * sizeof(Bf16::Element), piece, columns);
  return part;
}

template <int kActivation>
SLUICE_DEVICE void activateRows(const RowWork* work) {
  const auto body = [work](const auto& function, auto hasGate) {
    constexpr bool hasUp = hasGate.value;
    forParts<Bf16>(work, [work, &function](int row, int piece, int columns) {
      const GatePart in = loadGatePart(inRow(work, 0, row), piece, columns, hasUp);
      Values<Bf16> act;
      SLUICE_UNROLL
      for (int n = 0; n < Bf16::kCount; ++n) {
        const auto point = function.at(Bf16::unpackValue(in.gate, n), in.upAt(n));
        act[n] = point.f * point.u;
      }
      storePart<Bf16>(outRow(work, 0, row), piece, columns, Bf16::packPart(act));
    });
  };
  ops::withActivation<Scalar>(chosenActivation<kActivation>(work), load(&work->limit), body);
}

// A part of a row whose gradients are times `weight`. Returns what it adds to the gradient of that.
template <class Function>
SLUICE_DEVICE float gradOfPart(const RowWork* work, const Function& function, bool hasUp, float weight,
                               int row, int piece) {
  const int columns = load(&work->columns);
  const Part actGrad = loadPart<Bf16>(inRow(work, 0, row), piece, columns);
  const GatePart in = loadGatePart(inRow(work, 1, row), piece, columns, hasUp);
  Values<Bf16> gateGrad, upGrad, act;
  float sum = 0;
  SLUICE_UNROLL
  for (int n = 0; n < Bf16::kCount; ++n) {
    const float d = Bf16::unpackValue(actGrad, n), weighted = weight * d;
    const auto point = function.at(Bf16::unpackValue(in.gate, n), in.upAt(n));
    gateGrad[n] = weighted * point.u * point.fSlope;
    upGrad[n] = function.passUp(in.upAt(n), weighted * point.f);
    sum += d * point.f * point.u;
    act[n] = point.f * point.u;
  }
  if (load(&work->out[2]) != nullptr) {  // rounded as if it were stored, then weighted
    const Part stored = Bf16::packPart(act);
    SLUICE_UNROLL
    for (int n = 0; n < Bf16::kCount; ++n) act[n] = weight * Bf16::unpackValue(stored, n);
    storePart<Bf16>(outRow(work, 2, row), piece, columns, Bf16::packPart(act));
  }
  std::byte* const out = outRow(work, 0, row);
  storePart<Bf16>(out, piece, columns, Bf16::packPart(gateGrad));
  if (hasUp) storePart<Bf16>(out + columns * sizeof(Bf16::Element), piece, columns, Bf16::packPart(upGrad));
  return sum;
}

template <int kActivation>
SLUICE_DEVICE void activationGradOfRows(const RowWork* work) {
  const auto body = [work](const auto& function, auto hasGate) {
    constexpr bool hasUp = hasGate.value;
    const int rows = load(&work->rows), parts = countParts<Bf16>(load(&work->columns));
    auto* const weightGrads = reinterpret_cast<float*>(load(&work->out[1]));
    for (int row = mathWarp(); row < rows; row += kMathWarps) {
      const float weight = floatAt(load(&work->in[2]), row, 1);
      float sum = 0;
      for (int piece = laneIndex(); piece < parts; piece += 32)
        sum += gradOfPart(work, function, hasUp, weight, row, piece);
      sum = sumOfWarp(sum);
      if (laneIndex() == 0 && weightGrads != nullptr) store(&weightGrads[row], sum);
    }
  };
  ops::withActivation<Scalar>(chosenActivation<kActivation>(work), load(&work->limit), body);
}

}  // namespace sluice::gpu
