// Packing for the AVX2 units: a is widened to fp32, with the rows of a group side by side (offsetInA); b
// stays bf16, which takes half of the memory, and is widened before or while it is multiplied.
//
// B packed: [k][kNr]. Of 16 columns there are 8 pairs: the lower half of pair j is column j, the upper half
// column 8 + j. Of 8 more there are the numbers in order. Columns beyond the matrix are zero. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackAvx2 {
  using Element = float;

  // The place of row i, element r becomes src[i][r], for r < k: of any rows from the first one of a group on,
  // or of one row.
  static void copyRows(const BFloat16* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; i += kMr) {
      const BFloat16* const from = src + i * ld;
      Element* const to = dst + offsetInA<Unit>(i, 0);
      const int32_t inGroup = smaller(kMr, rows - i);
      int32_t r = 0;
      if constexpr (kMr == 4)
        if (inGroup == kMr)
          for (; k - r >= kEight; r += kEight) copySquare(from + r, ld, to + int64_t{r} * kMr);
      for (int32_t g = 0; g < inGroup; ++g)
        for (int32_t j = r; j < k; ++j) to[int64_t{j} * kMr + g] = widenBf16(from[g * ld + j].bits);
    }
  }

  // The place of row i, element r becomes src[r][i] * scale[r], for i < rows, r < k.
  static void transposeScaled(const BFloat16* src, int64_t ld, const float* scale, int32_t rows, int32_t k,
                              Element* dst) {
    for (int32_t i = 0; i < rows; i += kMr) {
      const BFloat16* from = src + i;
      Element* to = dst + offsetInA<Unit>(i, 0);
      const int32_t inGroup = smaller(kMr, rows - i);
      for (int32_t r = 0; r < k; ++r, from += ld, to += kMr) {
        if (inGroup == kMr)
          copyGroup(from, scale == nullptr ? nullptr : scale + r, to);
        else
          for (int32_t g = 0; g < inGroup; ++g)
            to[g] = scale == nullptr ? widenBf16(from[g].bits) : widenBf16(from[g].bits) * scale[r];
      }
    }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, BFloat16* dst,
                          const BFloat16* ahead) {
    BFloat16 edge[kNr] = {};
    for (int32_t r = 0; r < k; ++r, src += ld, dst += kNr) {
      if (ahead != nullptr) fetchSoon(ahead + r * ld);
      const BFloat16* row = src;
      if (cols < kNr) {
        __builtin_memcpy(edge, src, sizeof *src * static_cast<size_t>(cols));
        row = edge;
      }
      store(dst, interleavePairs(eightAt(row), eightAt(row + kEight)));
      if constexpr (kHasThird) storeEight(dst + 16, eightAt(row + 16));
    }
  }

  // The panel of b with columns in memory: src is [cols, k]. By 8 elements of the sum, as packed weights and
  // panels have room for.
  static void panelOfColumns(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, BFloat16* dst,
                             const BFloat16* ahead) {
    BFloat16 edge[kNr * kEight] = {};
    for (int32_t r = 0; r < k; r += kEight, src += kEight, dst += kEight * kNr) {
      for (int32_t j = 0; ahead != nullptr && r % kLineOfBf16 == 0 && j < cols; ++j)
        fetchSoon(ahead + j * ld + r);
      const BFloat16* from = src;
      int64_t stride = ld;
      if (cols < kNr || k - r < kEight) {
        const int32_t length = smaller(kEight, k - r);
        for (int32_t j = 0; j < cols; ++j)
          __builtin_memcpy(edge + j * kEight, src + j * ld, sizeof *src * static_cast<size_t>(length));
        from = edge;
        stride = kEight;
      }
      __m256i rows[kEight];  // a row has pairs of two columns
      for (int32_t j = 0; j < kEight; ++j)
        rows[j] = interleavePairs(eightAt(from + j * stride), eightAt(from + (kEight + j) * stride));
      transposePairs(rows);
      for (int32_t i = 0; i < kEight; ++i) store(dst + i * kNr, rows[i]);
      if constexpr (kHasThird) transposeEight(from + 16 * stride, stride * 2, dst + 16, kNr * 2);
    }
  }

 private:
  static constexpr int32_t kMr = Unit::kMr, kNr = Unit::kNr, kEight = 8;
  static constexpr bool kHasThird = kNr == 24;
  static_assert((kMr == 4 || kMr == 6) && (kNr == 16 || kHasThird));

  // One element of all rows of a group; no memory beside theirs is read or written.
  static void copyGroup(const BFloat16* from, const float* scale, float* to) {
    __m128i numbers = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    if constexpr (kMr == 6) {
      int32_t last;
      __builtin_memcpy(&last, from + 4, sizeof last);
      numbers = _mm_insert_epi32(numbers, last, 2);
    }
    __m256 wide = widened(numbers);
    if (scale != nullptr) wide = _mm256_mul_ps(wide, _mm256_broadcast_ss(scale));
    _mm_storeu_ps(to, _mm256_castps256_ps128(wide));
    if constexpr (kMr == 6) _mm_storel_pi(reinterpret_cast<__m64*>(to + 4), _mm256_extractf128_ps(wide, 1));
  }

  // 8 elements of 4 rows.
  static void copySquare(const BFloat16* from, int64_t ld, float* to) {
    const __m128i row[4] = {eightAt(from), eightAt(from + ld), eightAt(from + 2 * ld),
                            eightAt(from + 3 * ld)};
    const __m128i first[2] = {_mm_unpacklo_epi16(row[0], row[1]), _mm_unpackhi_epi16(row[0], row[1])};
    const __m128i second[2] = {_mm_unpacklo_epi16(row[2], row[3]), _mm_unpackhi_epi16(row[2], row[3])};
    unroll<2>([&](auto h) SLUICE_UNROLLED {
      const __m128i x = first[h.value], y = second[h.value];
      _mm256_storeu_ps(to + h.value * 16, widened(_mm_unpacklo_epi32(x, y)));
      _mm256_storeu_ps(to + h.value * 16 + 8, widened(_mm_unpackhi_epi32(x, y)));
    });
  }

  static __m256i interleavePairs(__m128i lower, __m128i upper) {
    return _mm256_set_m128i(_mm_unpackhi_epi16(lower, upper), _mm_unpacklo_epi16(lower, upper));
  }
  static void store(BFloat16* to, __m256i pairs) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs);
  }
  static void storeEight(BFloat16* to, __m128i numbers) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), numbers);
  }
};

}  // namespace
}  // namespace sluice::ops
