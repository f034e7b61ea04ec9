// The loop of dot products of rows with one vector over any Vector (ops/cpu/vector_*.h). Internal linkage:
// see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Several sums hide the latency of an addition; their order depends on n only.
template <class V>
float dotOfRow(const BFloat16* a, const BFloat16* b, int32_t n) {
  constexpr int kSums = 4;
  typename V::F sum[kSums];
  for (int v = 0; v < kSums; ++v) sum[v] = V::set(0.0f);
  int32_t j = 0;
  for (; n - j >= kSums * V::kWidth; j += kSums * V::kWidth)
    for (int v = 0; v < kSums; ++v) {
      const int32_t at = j + v * V::kWidth;
      sum[v] = V::mulAdd(V::load(a + at, V::kWidth), V::load(b + at, V::kWidth), sum[v]);
    }
  for (; j < n; j += V::kWidth) {
    const int32_t count = n - j < V::kWidth ? n - j : V::kWidth;
    sum[0] = V::mulAdd(V::load(a + j, count), V::load(b + j, count), sum[0]);
  }
  return V::sum(V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
}

template <class V>
void rowDotLoop(const RowDotArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const float sum = dotOfRow<V>(args.a + r * args.lda, args.b, args.n);
    args.c[r] = args.addend == nullptr ? sum : args.addend[r] + sum;
  }
}

}  // namespace
}  // namespace sluice::ops
