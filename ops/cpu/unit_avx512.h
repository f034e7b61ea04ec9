// The AVX-512 BF16 unit: tiles of 6 rows and 4 vectors of columns, 24 accumulators of vdpbf16ps.
// Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"

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
    __m512 sum[kRows][kVectors];
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v)
        sum[i][v] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(tile + i * kNr + v * 16);
    for (int32_t p = 0; p < pairs; ++p, a += 2, b += 2 * kNr) {
      __m512i column[kVectors];
      for (int v = 0; v < kVectors; ++v) column[v] = _mm512_loadu_si512(b + v * 32);
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        __builtin_memcpy(&pair, a + i * kAStride, 4);
        const auto row = (__m512bh)_mm512_set1_epi32(pair);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], row, (__m512bh)column[v]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(tile + i * kNr + v * 16, sum[i][v]);
  }
};

}  // namespace
}  // namespace sluice::ops
