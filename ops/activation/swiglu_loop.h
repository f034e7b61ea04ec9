// The loop of SwiGLU over any Vector (ops/cpu/vector_*.h). Internal linkage: see
// ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class V>
void swigluLoop(const SwigluArgs& args) {
  const typename V::F one = V::set(1.0f);
  const typename V::F zero = V::set(0.0f);
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
    const BFloat16* const up = gate + args.inter;
    BFloat16* const act = args.act + r * args.ldAct;
    for (int32_t i = 0; i < args.inter; i += V::kWidth) {
      const int32_t count = args.inter - i < V::kWidth ? args.inter - i : V::kWidth;
      const typename V::F g = V::load(gate + i, count);
      const typename V::F silu = V::div(g, V::add(one, V::exp(V::sub(zero, g))));
      V::store(act + i, V::mul(silu, V::load(up + i, count)), count);
    }
  }
}

}  // namespace
}  // namespace sluice::ops
