// The loop of the sum of two matrices over any Vector (ops/cpu/vector_*.h). Internal linkage:
// see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class V>
void addLoop(const AddArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const a = args.a + r * args.lda;
    const BFloat16* const b = args.b + r * args.ldb;
    BFloat16* const c = args.c + r * args.ldc;
    for (int32_t j = 0; j < args.n; j += V::kWidth) {
      const int32_t count = args.n - j < V::kWidth ? args.n - j : V::kWidth;
      V::store(c + j, V::add(V::load(a + j, count), V::load(b + j, count)), count);
    }
  }
}

}  // namespace
}  // namespace sluice::ops
