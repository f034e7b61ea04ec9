// The loops of the weighted sum of rows over any Vector (ops/cpu/vector_*.h), and of the sums of the rows'
// scalars. Internal linkage: see ops/cpu/blocked_product.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Columns [col, col + kVectors vectors) of one token; only a single vector may be shorter than whole.
template <class V, int kVectors, bool kHasParts, class T>
void weightedSumColumns(const WeightedSumOf<T>& args, int32_t token, int32_t col, int32_t count) {
  typename V::F sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = V::set(0.0f);
  for (int32_t j = 0; j < args.topK; ++j) {
    const int64_t pair = int64_t{token} * args.topK + j;
    const int32_t position = args.position[pair];
    if (position < 0) continue;
    const typename V::F weight = V::set(args.weight == nullptr ? 1.0f : args.weight[pair]);
    const T* const from = args.src + position * args.ldSrc + col;
    for (int v = 0; v < kVectors; ++v) {
      typename V::F row = V::load(from + v * V::kWidth, count);
      for (int32_t part = 1; kHasParts && part < args.parts; ++part)
        row = V::add(row, V::load(from + part * args.partRows * args.ldSrc + v * V::kWidth, count));
      sum[v] = V::mulAdd(weight, row, sum[v]);
    }
  }
  if (args.bias != nullptr)
    for (int v = 0; v < kVectors; ++v)
      sum[v] = V::add(sum[v], V::load(args.bias + col + v * V::kWidth, count));
  T* const to = args.y + token * args.ldY + col;
  for (int v = 0; v < kVectors; ++v) V::store(to + v * V::kWidth, sum[v], count);
}

// The sum of a single row without a weight or a bias is that row: its bits are copied unchanged and need not
// be numbers.
template <class T>
void copyRow(const WeightedSumOf<T>& args, int32_t token) {
  T* const to = args.y + token * args.ldY;
  if (args.position[token] < 0)
    std::fill_n(to, args.n, T{});
  else
    std::copy_n(args.src + args.position[token] * args.ldSrc, args.n, to);
}

template <class V, bool kHasParts, class T>
void weightedSumOfTokens(const WeightedSumOf<T>& args) {
  constexpr int32_t kVectors = 4;
  constexpr int32_t kBlock = kVectors * V::kWidth;
  for (int32_t token = 0; token < args.tokens; ++token) {
    int32_t col = 0;
    for (; args.n - col >= kBlock; col += kBlock)
      weightedSumColumns<V, kVectors, kHasParts>(args, token, col, V::kWidth);
    for (; col < args.n; col += V::kWidth) {
      const int32_t count = args.n - col < V::kWidth ? args.n - col : V::kWidth;
      weightedSumColumns<V, 1, kHasParts>(args, token, col, count);
    }
  }
}

template <class V, class T>
void weightedSumLoop(const WeightedSumOf<T>& args) {
  if (args.parts > 1) return weightedSumOfTokens<V, true>(args);
  if (args.topK != 1 || args.weight != nullptr || args.bias != nullptr)
    return weightedSumOfTokens<V, false>(args);
  for (int32_t token = 0; token < args.tokens; ++token) copyRow(args, token);
}

inline void sumScalarsLoop(const SumScalarsArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const int32_t position = args.position[i];
    float sum = position < 0 ? 0 : args.src[position];
    for (int32_t part = 1; position >= 0 && part < args.parts; ++part)
      sum += args.src[position + part * args.partElements];
    args.dst[i] = sum;
  }
}

}  // namespace
}  // namespace sluice::ops
