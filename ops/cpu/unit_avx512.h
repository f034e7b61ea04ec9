// The AVX-512 BF16 unit: tiles of 6 rows and 4 vectors of columns, 24 accumulators of vdpbf16ps.
// Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct UnitAvx512 {
  using Element = uint16_t;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 64;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 2;

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       float* tile) {
    using Function = void (*)(const Element*, const Element*, int32_t, bool, float*);
    static constexpr Function kBySize[6][4] = {{sized<1, 1>, sized<1, 2>, sized<1, 3>, sized<1, 4>},
                                               {sized<2, 1>, sized<2, 2>, sized<2, 3>, sized<2, 4>},
                                               {sized<3, 1>, sized<3, 2>, sized<3, 3>, sized<3, 4>},
                                               {sized<4, 1>, sized<4, 2>, sized<4, 3>, sized<4, 4>},
                                               {sized<5, 1>, sized<5, 2>, sized<5, 3>, sized<5, 4>},
                                               {sized<6, 1>, sized<6, 2>, sized<6, 3>, sized<6, 4>}};
    kBySize[rows - 1][(cols - 1) / 16](a, b, (k + 1) / 2, first, tile);
  }

 private:
  template <int kRows, int kVectors>
  static void sized(const Element* a, const Element* b, int32_t pairs, bool first, float* tile) {
    // Loading zeros stored just now is cheaper than what g++ makes of two ways to begin.
    if (first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    __m512 sum[kRows][kVectors];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        sum[i.value][v.value] = _mm512_loadu_ps(tile + i.value * kNr + v.value * 16);
      });
    });
    for (int32_t p = 0; p < pairs; ++p, a += 2, b += 2 * kNr) {
      __m512i column[kVectors];
      unroll<kVectors>([&](auto v)
                           SLUICE_UNROLLED { column[v.value] = _mm512_loadu_si512(b + v.value * 32); });
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        int32_t pair;
        __builtin_memcpy(&pair, a + i.value * kAStride, 4);
        const auto row = (__m512bh)_mm512_set1_epi32(pair);
        unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
          sum[i.value][v.value] = _mm512_dpbf16_ps(sum[i.value][v.value], row, (__m512bh)column[v.value]);
        });
      });
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        _mm512_storeu_ps(tile + i.value * kNr + v.value * 16, sum[i.value][v.value]);
      });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
