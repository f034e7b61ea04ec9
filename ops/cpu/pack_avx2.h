// Packing for the AVX2 unit: a is widened to fp32 as by PackF32; b stays bf16, which takes half of the
// memory, and is widened in registers.
//
// B packed: [k][kNr / 2] pairs; the lower half of pair j is column j, the upper half column kNr / 2 + j.
// Columns beyond the matrix are zero. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/pairs_avx2.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackAvx2 : PackF32<Unit> {
  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, BFloat16* dst,
                          const BFloat16* ahead) {
    BFloat16 edge[kColumns] = {};
    for (int32_t r = 0; r < k; ++r, src += ld, dst += kColumns) {
      if (ahead != nullptr) fetchSoon(ahead + r * ld);
      const BFloat16* row = src;
      if (cols < kColumns) {
        __builtin_memcpy(edge, src, sizeof *src * static_cast<size_t>(cols));
        row = edge;
      }
      store(dst, pairsOf(eightAt(row), eightAt(row + kHalf)));
    }
  }

  // The panel of b with columns in memory: src is [cols, k]. By 8 elements of the sum, as packed weights and
  // panels have room for.
  static void panelOfColumns(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, BFloat16* dst,
                             const BFloat16* ahead) {
    BFloat16 edge[kColumns * kHalf] = {};
    for (int32_t r = 0; r < k; r += kHalf, src += kHalf, dst += kHalf * kColumns) {
      for (int32_t j = 0; ahead != nullptr && r % kLineOfBf16 == 0 && j < cols; ++j)
        fetchSoon(ahead + j * ld + r);
      const BFloat16* from = src;
      int64_t stride = ld;
      if (cols < kColumns || k - r < kHalf) {
        const int32_t length = smaller(kHalf, k - r);
        for (int32_t j = 0; j < cols; ++j)
          __builtin_memcpy(edge + j * kHalf, src + j * ld, sizeof *src * static_cast<size_t>(length));
        from = edge;
        stride = kHalf;
      }
      __m256i rows[kHalf];  // a row has pairs of two columns
      for (int32_t j = 0; j < kHalf; ++j)
        rows[j] = pairsOf(eightAt(from + j * stride), eightAt(from + (kHalf + j) * stride));
      transposePairs(rows);
      for (int32_t i = 0; i < kHalf; ++i) store(dst + i * kColumns, rows[i]);
    }
  }

 private:
  static constexpr int32_t kColumns = Unit::kNr, kHalf = kColumns / 2;
  static_assert(kHalf == 8);

  static __m256i pairsOf(__m128i lower, __m128i upper) {
    return _mm256_set_m128i(_mm_unpackhi_epi16(lower, upper), _mm_unpacklo_epi16(lower, upper));
  }
  static void store(BFloat16* to, __m256i pairs) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs);
  }
};

}  // namespace
}  // namespace sluice::ops
