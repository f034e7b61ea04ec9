// The kernels that go over rows, for any Vector, and their table. A file of each instruction set (rows_*.cc)
// has its Vector, which rows_avx512.cc documents, and makes the table for it. Internal linkage: see
// blocked_product.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/activation_point.h"
#include "ops/cpu/bits.h"
#include "ops/cpu/code_loops.h"
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

// One copy per row, for which the C library uses the best instructions of the machine. kBytes: the bytes of a
// row, so that the compiler knows them and copies a row by one instruction; 0: args.bytes.
template <size_t kBytes>
void gather(const GatherRowsArgs& args) {
  const size_t bytes = kBytes != 0 ? kBytes : static_cast<size_t>(args.bytes);
  for (int32_t i = 0; i < args.rows; ++i) {
    const int32_t index = args.index == nullptr ? i : args.index[i];
    std::byte* const row = args.dst + i * args.dstStride;
    if (index < 0)
      __builtin_memset(row, 0, bytes);
    else
      __builtin_memcpy(row, args.src + index / args.divisor * args.srcStride, bytes);
  }
}

inline void gatherRowsLoop(const GatherRowsArgs& args) {
  if (args.bytes == sizeof(float))
    gather<sizeof(float)>(args);
  else if (args.bytes > 0)
    gather<0>(args);
}

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

template <class V>
constexpr RowKernels kRowKernels = {.activation = activationLoop<V>,
                                    .activationGrad = activationGradLoop<V>,
                                    .gatherRows = gatherRowsLoop,
                                    .weightedSum = weightedSumLoop<V, BFloat16>,
                                    .weightedSumF32 = weightedSumLoop<V, float>,
                                    .sumScalars = sumScalarsLoop,
                                    .add = addLoop<V>,
                                    .scale = scaleLoop<V, BFloat16>,
                                    .scaleF32 = scaleLoop<V, float>,
                                    .columnSum = columnSumLoop<V>,
                                    .rowDot = rowDotLoop<V>,
                                    .quantize = quantizeLoop,
                                    .amax = amaxLoop,
                                    .encode = encodeLoop};

}  // namespace
}  // namespace sluice::ops
