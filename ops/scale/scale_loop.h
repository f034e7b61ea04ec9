// The loop of a matrix times a number over any Vector (ops/cpu/vector_*.h). Internal linkage:
// see ops/cpu/blocked_product.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class V, class T>
void scaleLoop(const ScaleOf<T>& args) {
  const typename V::F alpha = V::set(args.alpha);
  for (int32_t r = 0; r < args.rows; ++r) {
    const T* const a = args.a + r * args.lda;
    T* const c = args.c + r * args.ldc;
    if (args.alpha == 1.0f) {  // bits pass unchanged and need not be numbers
      std::copy_n(a, args.n, c);
      continue;
    }
    for (int32_t j = 0; j < args.n; j += V::kWidth) {
      const int32_t count = args.n - j < V::kWidth ? args.n - j : V::kWidth;
      V::store(c + j, V::mul(alpha, V::load(a + j, count)), count);
    }
  }
}

}  // namespace
}  // namespace sluice::ops
