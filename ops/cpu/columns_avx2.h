// The square of columns.h for fused multiply-adds of AVX2: 8 columns, 16 elements of the sum. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

class SquareAvx2 {
 public:
  static constexpr int32_t kColumns = 8;
  static constexpr int32_t kLength = 16;
  static constexpr int32_t kAhead = 16 * kLength;

  SquareAvx2(const BFloat16* b, int64_t ldb) {
    for (int j = 0; j < 8; ++j) pairs_[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + j * ldb));
    transposePairs(pairs_);
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
      const __m256i row = readPair(a + r / 2 * 2), pairs = pairs_[r / 2];
      sum = r % 2 == 0 ? _mm256_fmadd_ps(lowerOfPairs(row), lowerOfPairs(pairs), sum)
                       : _mm256_fmadd_ps(upperOfPairs(row), upperOfPairs(pairs), sum);
    }
    _mm256_storeu_ps(tile, sum);
  }

 private:
  template <int kRows>
  SLUICE_UNROLLED void addRows(const BFloat16* a, int64_t lda, float* tile, int32_t stride) const {
    __m256 sum[kRows];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm256_loadu_ps(tile + i.value * stride); });
    unroll<8>([&](auto p) SLUICE_UNROLLED {
      const __m256 even = lowerOfPairs(pairs_[p.value]), odd = upperOfPairs(pairs_[p.value]);
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const __m256i row = readPair(a + i.value * lda + 2 * p.value);
        sum[i.value] = _mm256_fmadd_ps(lowerOfPairs(row), even, sum[i.value]);
        sum[i.value] = _mm256_fmadd_ps(upperOfPairs(row), odd, sum[i.value]);
      });
    });
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { _mm256_storeu_ps(tile + i.value * stride, sum[i.value]); });
  }

  static __m256i readPair(const BFloat16* row) {
    int32_t pair;
    __builtin_memcpy(&pair, row, 4);
    return _mm256_set1_epi32(pair);
  }
  __m256i pairs_[8];  // two elements of the sum of 8 columns
};

}  // namespace
}  // namespace sluice::ops
