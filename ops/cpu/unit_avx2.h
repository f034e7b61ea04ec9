// The AVX2 unit: tiles of 6 rows and 2 vectors of columns in fp32, 12 accumulators of fused multiply-adds.
// Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct UnitAvx2 {
  using Element = float;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 16;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 1;
  static constexpr int32_t kFewKc = 64;
  static constexpr int32_t kRowsKc = 0;  // reads packed panels only

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       float* tile) {
    using Function = void (*)(const Element*, const Element*, int32_t, bool, float*);
    static constexpr Function kBySize[6][2] = {{sized<1, 1>, sized<1, 2>}, {sized<2, 1>, sized<2, 2>},
                                               {sized<3, 1>, sized<3, 2>}, {sized<4, 1>, sized<4, 2>},
                                               {sized<5, 1>, sized<5, 2>}, {sized<6, 1>, sized<6, 2>}};
    kBySize[rows - 1][(cols - 1) / 8](a, b, k, first, tile);
  }

 private:
  template <int kRows, int kVectors>
  static void sized(const Element* a, const Element* b, int32_t k, bool first, float* tile) {
    // Loading zeros stored just now is cheaper than what g++ makes of two ways to begin.
    if (first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    __m256 sum[kRows][kVectors];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        sum[i.value][v.value] = _mm256_loadu_ps(tile + i.value * kNr + v.value * 8);
      });
    });
    for (int32_t s = 0; s < k; ++s, ++a, b += kNr) {
      __m256 column[kVectors];
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED { column[v.value] = _mm256_loadu_ps(b + v.value * 8); });
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const __m256 row = _mm256_broadcast_ss(a + i.value * kAStride);
        unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
          sum[i.value][v.value] = _mm256_fmadd_ps(row, column[v.value], sum[i.value][v.value]);
        });
      });
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        _mm256_storeu_ps(tile + i.value * kNr + v.value * 8, sum[i.value][v.value]);
      });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
