// The loop of sums of columns over any Vector (ops/cpu/vector_*.h). Internal linkage:
// see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

inline void storeColumnSums(const ColumnSumArgs& args, const float* sum, int32_t col, int32_t count) {
  if (args.c.type == DType::kBF16) {
    BFloat16* const to = static_cast<BFloat16*>(args.c.data) + col;
    for (int32_t j = 0; j < count; ++j)
      to[j].bits = roundToBf16(args.accumulate ? widenBf16(to[j].bits) + sum[j] : sum[j]);
    return;
  }
  float* const to = static_cast<float*>(args.c.data) + col;
  for (int32_t j = 0; j < count; ++j) to[j] = args.accumulate ? to[j] + sum[j] : sum[j];
}

// Columns [col, col + kVectors vectors); only a single vector may be shorter than whole.
template <class V, int kVectors>
void sumsOfColumns(const ColumnSumArgs& args, int32_t col, int32_t count) {
  typename V::F sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = V::set(0.0f);
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const from = args.a + r * args.lda + col;
    const typename V::F scale = V::set(args.scale == nullptr ? 1.0f : args.scale[r]);
    for (int v = 0; v < kVectors; ++v)
      sum[v] = V::mulAdd(scale, V::load(from + v * V::kWidth, count), sum[v]);
  }
  float sums[kVectors * V::kWidth];
  __builtin_memcpy(sums, sum, sizeof sums);
  storeColumnSums(args, sums, col, kVectors == 1 ? count : kVectors * V::kWidth);
}

// Each column is summed by itself, so that its bits do not depend on the columns next to it.
template <class V>
void columnSumLoop(const ColumnSumArgs& args) {
  if (args.accumulate && args.rows <= 0) return;  // adding 0 would turn a -0 into 0
  constexpr int32_t kBlock = 64;                  // whole lines of a row
  int32_t col = 0;
  for (; args.n - col >= kBlock; col += kBlock) sumsOfColumns<V, kBlock / V::kWidth>(args, col, V::kWidth);
  for (; col < args.n; col += V::kWidth)
    sumsOfColumns<V, 1>(args, col, args.n - col < V::kWidth ? args.n - col : V::kWidth);
}

}  // namespace
}  // namespace sluice::ops
