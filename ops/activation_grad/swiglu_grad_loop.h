// The loop of the gradient of SwiGLU over any Vector (ops/cpu/vector_*.h). Internal linkage:
// see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"

namespace sluice::ops {
namespace {

// Element i of the result depends on element i of the inputs only, so results may replace their inputs.
template <class V>
void swigluGradLoop(const SwigluGradArgs& args) {
  using F = typename V::F;
  const F one = V::set(1.0f);
  const F zero = V::set(0.0f);
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
    const BFloat16* const actGrad = args.actGrad + r * args.ldActGrad;
    BFloat16* const gateGrad = args.gateUpGrad + r * args.ldGateUpGrad;
    const F weight = V::set(args.rowWeight == nullptr ? 1.0f : args.rowWeight[r]);
    F rowSum = zero;
    for (int32_t i = 0; i < args.inter; i += V::kWidth) {
      const int32_t count = args.inter - i < V::kWidth ? args.inter - i : V::kWidth;
      const F g = V::load(gate + i, count);
      const F u = V::load(gate + args.inter + i, count);
      const F d = V::load(actGrad + i, count);
      const F s = V::div(one, V::add(one, V::exp(V::sub(zero, g))));
      const F silu = V::mul(g, s);
      const F slope = V::mul(s, V::mulAdd(g, V::sub(one, s), one));
      const F weighted = V::mul(weight, d);
      V::store(gateGrad + i, V::mul(V::mul(weighted, u), slope), count);
      V::store(gateGrad + args.inter + i, V::mul(weighted, silu), count);
      rowSum = V::mulAdd(V::mul(d, silu), u, rowSum);
    }
    if (args.rowWeightGrad != nullptr) args.rowWeightGrad[r] = V::sum(rowSum);
  }
}

}  // namespace
}  // namespace sluice::ops
