// The loop of the activations over any Vector (ops/cpu/vector_*.h). Internal linkage: see
// ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/activation_point.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class V, bool kGated, class Function>
void activationBy(const ActivationArgs& args, const Function function) {
  const int32_t upColumn = findUpColumn(args.kind, args.upColumn, args.inter);
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
    const BFloat16* const up = gate + upColumn;
    BFloat16* const act = args.act + r * args.ldAct;
    for (int32_t i = 0; i < args.inter; i += V::kWidth) {
      const int32_t count = args.inter - i < V::kWidth ? args.inter - i : V::kWidth;
      const typename V::F factor = kGated ? V::load(up + i, count) : V::set(1.0f);
      const VectorPoint<V> point = function.at(V::load(gate + i, count), factor);
      V::store(act + i, V::mul(point.f, point.u), count);
    }
  }
}

template <class V>
void activationLoop(const ActivationArgs& args) {
  withActivation<V>(args.kind, args.limit, [&](const auto& function, auto isGated) {
    activationBy<V, isGated.value>(args, function);
  });
}

}  // namespace
}  // namespace sluice::ops
