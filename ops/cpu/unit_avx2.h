// The AVX2 unit: tiles of 6 rows and 2 vectors of columns in fp32, 12 accumulators of fused multiply-adds.
// Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

struct UnitAvx2 {
  using Element = float;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 16;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 1;

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
    __m256 sum[kRows][kVectors];
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v)
        sum[i][v] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(tile + i * kNr + v * 8);
    for (int32_t s = 0; s < k; ++s, ++a, b += kNr) {
      __m256 column[kVectors];
      for (int v = 0; v < kVectors; ++v) column[v] = _mm256_loadu_ps(b + v * 8);
      for (int i = 0; i < kRows; ++i) {
        const __m256 row = _mm256_broadcast_ss(a + i * kAStride);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm256_fmadd_ps(row, column[v], sum[i][v]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(tile + i * kNr + v * 8, sum[i][v]);
  }
};

}  // namespace
}  // namespace sluice::ops
