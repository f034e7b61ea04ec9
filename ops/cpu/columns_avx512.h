// The square of columns.h for vdpbf16ps: 16 columns, 32 elements of the sum. Internal linkage: see
// blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/square.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

class SquareAvx512 {
 public:
  static constexpr int32_t kColumns = kSquare;
  static constexpr int32_t kLength = 2 * kSquare;
  static constexpr int32_t kAhead = 16 * kLength;

  SquareAvx512(const BFloat16* b, int64_t ldb) {
    for (int j = 0; j < kSquare; ++j) pairs_[j] = _mm512_loadu_si512(b + j * ldb);
    transposeInPlace(pairs_);
  }

  template <bool kOneRow>
  SLUICE_UNROLLED void add(const BFloat16* a, int64_t lda, int32_t m, float* tile, int32_t stride) const {
    if constexpr (kOneRow) {
      addRows<1>(a, lda, tile, stride);
      return;
    }
    if (m == 8) {
      addRows<8>(a, lda, tile, stride);
      return;
    }
    if (m >= 4) {
      addRows<4>(a, lda, tile, stride);
      m -= 4, a += 4 * lda, tile += 4 * stride;
    }
    if (m >= 2) {
      addRows<2>(a, lda, tile, stride);
      m -= 2, a += 2 * lda, tile += 2 * stride;
    }
    if (m > 0) addRows<1>(a, lda, tile, stride);
  }

  void addSome(const BFloat16* a, int32_t k, float* tile) const {
    __m512 sum = _mm512_loadu_ps(tile);
    for (int32_t p = 0; 2 * p < k; ++p) sum = addPair(sum, a + 2 * p, pairs_[p]);
    _mm512_storeu_ps(tile, sum);
  }

 private:
  template <int kRows>
  SLUICE_UNROLLED void addRows(const BFloat16* a, int64_t lda, float* tile, int32_t stride) const {
    __m512 sum[kRows];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm512_loadu_ps(tile + i.value * stride); });
    unroll<kSquare>([&](auto p) SLUICE_UNROLLED {
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        sum[i.value] = addPair(sum[i.value], a + i.value * lda + 2 * p.value, pairs_[p.value]);
      });
    });
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { _mm512_storeu_ps(tile + i.value * stride, sum[i.value]); });
  }

  static __m512 addPair(__m512 sum, const BFloat16* row, __m512i pairs) {
    int32_t pair;
    __builtin_memcpy(&pair, row, 4);
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)pairs);
  }

  __m512i pairs_[kSquare];  // two elements of the sum of 16 columns
};

}  // namespace
}  // namespace sluice::ops
