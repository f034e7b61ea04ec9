// The square of columns.h for fused multiply-adds of AVX2: 8 columns, 16 elements of the sum. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

class SquareAvx2 {
 public:
  static constexpr int32_t kColumns = 8;
  static constexpr int32_t kLength = 16;
  static constexpr int32_t kAhead = 16 * kLength;
  static constexpr int32_t kMostRows = 8;

  SquareAvx2(const BFloat16* b, int64_t ldb) {
    for (int j = 0; j < 8; ++j) pairs_[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + j * ldb));
    transpose(pairs_);
  }

  template <bool kOneRow>
  SLUICE_UNROLLED void add(const BFloat16* a, int64_t lda, int32_t m, float* tile, int32_t stride) const {
    if constexpr (kOneRow) {
      addRows<1>(a, lda, tile, stride);
      return;
    }
    for (; m >= 4; m -= 4, a += 4 * lda, tile += 4 * stride) addRows<4>(a, lda, tile, stride);
    if (m >= 2) {
      addRows<2>(a, lda, tile, stride);
      m -= 2, a += 2 * lda, tile += 2 * stride;
    }
    if (m > 0) addRows<1>(a, lda, tile, stride);
  }

  void addSome(const BFloat16* a, int32_t k, float* tile) const {
    __m256 sum = _mm256_loadu_ps(tile);
    for (int32_t r = 0; r < k; ++r) {
      const __m256i row = pairOf(a + r / 2 * 2), pairs = pairs_[r / 2];
      sum = r % 2 == 0 ? _mm256_fmadd_ps(lower(row), lower(pairs), sum)
                       : _mm256_fmadd_ps(upper(row), upper(pairs), sum);
    }
    _mm256_storeu_ps(tile, sum);
  }

 private:
  template <int kRows>
  SLUICE_UNROLLED void addRows(const BFloat16* a, int64_t lda, float* tile, int32_t stride) const {
    __m256 sum[kRows];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm256_loadu_ps(tile + i.value * stride); });
    unroll<8>([&](auto p) SLUICE_UNROLLED {
      const __m256 even = lower(pairs_[p.value]), odd = upper(pairs_[p.value]);
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const __m256i row = pairOf(a + i.value * lda + 2 * p.value);
        sum[i.value] = _mm256_fmadd_ps(lower(row), even, sum[i.value]);
        sum[i.value] = _mm256_fmadd_ps(upper(row), odd, sum[i.value]);
      });
    });
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { _mm256_storeu_ps(tile + i.value * stride, sum[i.value]); });
  }

  static __m256i pairOf(const BFloat16* row) {
    int32_t pair;
    __builtin_memcpy(&pair, row, 4);
    return _mm256_set1_epi32(pair);
  }
  // The bf16 numbers of one half of all words.
  static __m256 lower(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static __m256 upper(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
  }

  // x[j], word i = x[i], word j.
  static void transpose(__m256i (&x)[8]) {
    __m256i y[8];
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
      y[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    for (int q = 0; q < 2; ++q) {
      x[4 * q] = _mm256_unpacklo_epi64(y[4 * q], y[4 * q + 2]);
      x[4 * q + 1] = _mm256_unpackhi_epi64(y[4 * q], y[4 * q + 2]);
      x[4 * q + 2] = _mm256_unpacklo_epi64(y[4 * q + 1], y[4 * q + 3]);
      x[4 * q + 3] = _mm256_unpackhi_epi64(y[4 * q + 1], y[4 * q + 3]);
    }
    // x[4q + c], half l: word 4l + c of rows 4q .. 4q + 3
    for (int c = 0; c < 4; ++c) {
      const __m256i low = _mm256_permute2x128_si256(x[c], x[4 + c], 0x20);
      x[4 + c] = _mm256_permute2x128_si256(x[c], x[4 + c], 0x31);
      x[c] = low;
    }
  }

  __m256i pairs_[8];  // two elements of the sum of 8 columns
};

}  // namespace
}  // namespace sluice::ops
