// The loop of a matrix times a number, or one per row, over any Vector (ops/cpu/vector_*.h). Internal
// linkage: see ops/cpu/blocked_product.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class V, class T>
void scaleLoop(const ScaleOf<T>& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const T* const a = args.a + r * args.lda;
    T* const c = args.c + r * args.ldc;
    if (args.alpha == 1.0f && args.rowWeight == nullptr) {  // bits pass unchanged and need not be numbers
      std::copy_n(a, args.n, c);
      continue;
    }
    const typename V::F factor =
        V::set(args.rowWeight == nullptr ? args.alpha : args.alpha * args.rowWeight[r]);
    for (int32_t j = 0; j < args.n; j += V::kWidth) {
      const int32_t count = args.n - j < V::kWidth ? args.n - j : V::kWidth;
      V::store(c + j, V::mul(factor, V::load(a + j, count)), count);
    }
  }
}

}  // namespace
}  // namespace sluice::ops
