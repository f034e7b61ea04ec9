// The loop of the gradient of the activations over any Vector (ops/cpu/vector_*.h). Internal linkage:
// see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/activation_point.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Element i of the result depends on element i of the inputs only, so results may replace their inputs.
template <class V, bool kGated, class Function>
void activationGradBy(const ActivationGradArgs& args, const Function function) {
  using F = typename V::F;
  const int32_t upColumn = findUpColumn(args.kind, args.upColumn, args.inter);
  const int32_t upGradColumn = findUpColumn(args.kind, args.upGradColumn, args.inter);
  auto* const allWeighted = static_cast<BFloat16*>(args.weightedAct.data);
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
    const BFloat16* const actGrad = args.actGrad + r * args.ldActGrad;
    BFloat16* const gateGrad = args.gateUpGrad + r * args.ldGateUpGrad;
    BFloat16* const weightedAct = allWeighted == nullptr ? nullptr : allWeighted + r * args.weightedAct.ld;
    const F weight = V::set(args.rowWeight == nullptr ? 1.0f : args.rowWeight[r]);
    F rowSum = V::set(0.0f);
    for (int32_t i = 0; i < args.inter; i += V::kWidth) {
      const int32_t count = args.inter - i < V::kWidth ? args.inter - i : V::kWidth;
      const F up = kGated ? V::load(gate + upColumn + i, count) : V::set(1.0f);
      const F d = V::load(actGrad + i, count);
      const VectorPoint<V> point = function.at(V::load(gate + i, count), up);
      const F weighted = V::mul(weight, d);
      V::store(gateGrad + i, V::mul(V::mul(weighted, point.u), point.fSlope), count);
      if (kGated)
        V::store(gateGrad + upGradColumn + i, function.passUp(up, V::mul(weighted, point.f)), count);
      rowSum = V::mulAdd(V::mul(d, point.f), point.u, rowSum);
      if (weightedAct != nullptr) {  // rounded twice
        V::store(weightedAct + i, V::mul(point.f, point.u), count);
        V::store(weightedAct + i, V::mul(weight, V::load(weightedAct + i, count)), count);
      }
    }
    if (args.rowWeightGrad != nullptr) args.rowWeightGrad[r] = V::sum(rowSum);
  }
}

template <class V>
void activationGradLoop(const ActivationGradArgs& args) {
  withActivation<V>(args.kind, args.limit, [&](const auto& function, auto isGated) {
    activationGradBy<V, isGated.value>(args, function);
  });
}

}  // namespace
}  // namespace sluice::ops
