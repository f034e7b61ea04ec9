// Products of few rows with a transposed weight, b [n, k], by vdpbf16ps and without packing: squares of 16
// columns and 32 elements of the sum are transposed in registers, where they are multiplied at once.
//
//   for 16 columns of c
//     for 32 elements of the sum: transpose the square; for rows of a: sums of 16 columns += row * square
//
// The sum of an element runs over pairs in order, as in unit_avx512.h: the bits are the same. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/square.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct ColumnsAvx512 {
  static constexpr int32_t kLength = 2 * kSquare;  // elements of the sum of a square: a line of the cache

  // tile[row, 0 to cols) = the products of rows [0, m) with columns [col, col + cols), for cols up to the
  // `stride` of the tile's rows, a multiple of 16. What follows in b is asked for meanwhile.
  template <class Source>
  static void multiply(const Source& source, int32_t m, int32_t col, int32_t cols, int32_t k, float* tile,
                       int32_t stride) {
    for (int32_t j = 0; j < cols; j += kSquare)
      sums(source, m, col + j, smaller(kSquare, cols - j), k, tile + j, stride);
  }

 private:
  // Elements of the sum by which b is asked for ahead of its use.
  static constexpr int32_t kAhead = 16 * kLength;

  template <class Source>
  static void sums(const Source& source, int32_t m, int32_t col, int32_t cols, int32_t k, float* tile,
                   int32_t stride) {
    for (int32_t i = 0; i < m; ++i) _mm512_storeu_ps(tile + i * stride, _mm512_setzero_ps());
    const int64_t lda = source.strideA(), ldb = source.strideB();
    int32_t k0 = 0;
    for (; cols == kSquare && k - k0 >= kLength; k0 += kLength) {
      const int32_t later = k0 + kAhead;
      const BFloat16* const ahead =
          later < k ? source.sourceB(col, later) : source.sourceB(col + kSquare, later - k);
      const BFloat16* const b = source.sourceB(col, k0);
      __m512i pairs[kSquare];
      for (int i = 0; i < kSquare; ++i) {
        pairs[i] = _mm512_loadu_si512(b + i * ldb);
        fetchSoon(ahead + i * ldb);
      }
      transposeInPlace(pairs);
      const BFloat16* a = source.sourceA(0, k0);
      for (int32_t i = 0; i < m; ++i, a += lda) addPairs(pairs, a, tile + i * stride);
    }
    for (; k0 < k; k0 += kLength) addEdge(source, m, col, cols, k0, smaller(kLength, k - k0), tile, stride);
  }

  static __m512 addPair(__m512 sum, const void* row, __m512i pairs) {
    int32_t pair;
    __builtin_memcpy(&pair, row, 4);
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)pairs);
  }

  static void addPairs(const __m512i (&pairs)[kSquare], const BFloat16* a, float* tile) {
    __m512 sum = _mm512_loadu_ps(tile);
    unroll<kSquare>([&](auto p) SLUICE_UNROLLED { sum = addPair(sum, a + 2 * p.value, pairs[p.value]); });
    _mm512_storeu_ps(tile, sum);
  }

  // A square that is not whole. Only pairs that are there are added: a zero would turn a -0 into 0.
  template <class Source>
  static void addEdge(const Source& source, int32_t m, int32_t col, int32_t cols, int32_t k0, int32_t k,
                      float* tile, int32_t stride) {
    uint16_t square[kSquare][kLength] = {};
    const auto bytes = static_cast<size_t>(k) * 2;
    for (int32_t j = 0; j < cols; ++j) __builtin_memcpy(square[j], source.sourceB(col + j, k0), bytes);
    __m512i pairs[kSquare];
    for (int j = 0; j < kSquare; ++j) pairs[j] = _mm512_loadu_si512(square[j]);
    transposeInPlace(pairs);
    for (int32_t i = 0; i < m; ++i) {
      uint16_t row[kLength] = {};
      __builtin_memcpy(row, source.sourceA(i, k0), bytes);
      __m512 sum = _mm512_loadu_ps(tile + i * stride);
      for (int32_t p = 0; 2 * p < k; ++p) sum = addPair(sum, row + 2 * p, pairs[p]);
      _mm512_storeu_ps(tile + i * stride, sum);
    }
  }
};

}  // namespace
}  // namespace sluice::ops
