// Rows of finished tiles on their way to the result. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/nibbles.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// The row of a finished tile times alpha, stored in `scaled`; if alpha is 1, the row itself.
template <int32_t kNr>
const float* timesAlpha(const float* row, int32_t cols, float alpha, float (&scaled)[kNr]) {
  if (alpha == 1.0f) return row;
  for (int32_t j = 0; j < cols; ++j) scaled[j] = row[j] * alpha;
  return scaled;
}

// The row of a finished tile times alpha, plus the bias of its columns unless that is null.
template <int32_t kNr>
const float* withBias(const float* row, int32_t cols, float alpha, const BFloat16* bias,
                      float (&scaled)[kNr]) {
  if (bias == nullptr) return timesAlpha(row, cols, alpha, scaled);
  for (int32_t j = 0; j < cols; ++j) scaled[j] = row[j] * alpha + widenBf16(bias[j].bits);
  return scaled;
}

// Sums to bf16. They are not subnormal, so vcvtneps2bf16, which would make those zero, rounds like
// roundToBf16.
inline void roundRow(const float* __restrict from, int32_t count, BFloat16* __restrict to) {
#if defined(__AVX512BF16__)
  for (int32_t j = 0; j < count; j += 16) {
    const auto some = static_cast<__mmask16>(count - j < 16 ? (1u << (count - j)) - 1 : 0xffffu);
    _mm256_mask_storeu_epi16(to + j, some,
                             (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, from + j)));
  }
#else
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(from[j]);
#endif
}

// The memory of rows x columns elements.
template <class T>
Lines makeLines(const T* from, int64_t ld, int32_t rows, int32_t columns, const int32_t* index = nullptr) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  return {from, rows, ld * kBytes / kPerElement<T>, columns * kBytes / kPerElement<T>, index};
}
// From `row` on, of a matrix whose rows lie where `index` says.
template <class T>
Lines makeLines(const T* matrix, int64_t ld, int32_t row, int32_t rows, int32_t columns, RowIndex index) {
  if (index) return makeLines(matrix, ld, rows, columns, index.index + row);
  return makeLines(numberAt(matrix, row * ld), ld, rows, columns);
}

// The memory of `cols` columns from `col` on, which begin at `from` in the first of `rows` rows, except for
// the lines that they share with the columns before: those were prefetched with these columns.
template <class T>
Lines linesOfColumns(const T* from, int64_t ld, int32_t rows, int32_t col, int32_t cols, RowIndex index = {},
                     int32_t row = 0) {
  constexpr int32_t kInLine = kLineBytes / static_cast<int32_t>(sizeof(T)) * kPerElement<T>;
  const int32_t shared = (kInLine - col % kInLine) % kInLine;
  if (shared >= cols) return {};
  return makeLines(numberAt(from, shared), ld, row, rows, cols - shared, index);
}

}  // namespace
}  // namespace sluice::ops
