// Products of codes of 8 bits and panels of codes of 4 bits in the form that lasts (groups.h), by vpmaddubsw,
// which multiplies unsigned bytes by signed ones and adds pairs of products as 16 bits. Internal linkage: see
// blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// Packed a: [rows][kStride], each pair of codes twice, so that a pair takes the room of two codes of 16 bits
// and one load broadcasts it. It is padded with zeros to a multiple of 8 elements of the sum.
template <int32_t kStride>
struct NibblesAvx2 {
  using Element = uint16_t;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 16;
  static constexpr bool kTakesAnyRows = true;

  static void copyRows(const int8_t* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i, src += ld, dst += kStride) {
      int32_t j = 0;
      for (; j + 16 <= k; j += 16) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + j));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + j), _mm_unpacklo_epi16(codes, codes));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + j + 8), _mm_unpackhi_epi16(codes, codes));
      }
      for (; j < roundUp(k, kStep); j += 2) {
        const int8_t pair[2] = {j < k ? src[j] : int8_t{0}, j + 1 < k ? src[j + 1] : int8_t{0}};
        __builtin_memcpy(dst + j, pair, sizeof pair);
        __builtin_memcpy(dst + j + 1, pair, sizeof pair);
      }
    }
  }

  // The first `rows` rows of sums[kMr, kNr] become a * b over k elements, in all columns.
  static void multiply(const Element* a, const int8_t* b, int32_t k, int32_t rows, int32_t, bool,
                       int32_t* sums, Ahead& ahead) {
    using Function = void (*)(const Element*, const int8_t*, int32_t, int32_t*, Ahead&);
    static constexpr Function kByRows[kMr] = {sized<1>, sized<2>, sized<3>, sized<4>, sized<5>, sized<6>};
    kByRows[rows - 1](a, b, k, sums, ahead);
  }

 private:
  // 64 bytes of a panel have so many elements of the sum: two pairs in the lower halves, the next two in the
  // upper ones.
  static constexpr int32_t kStep = 8;
  // After so many steps the sums of lower and of upper halves have 8 pairs each: at most 8 * 2 * 15 * 128,
  // which 16 bits hold.
  static constexpr int32_t kSteps = 4;

  SLUICE_UNROLLED static __m256i pairAt(const Element* a) {
    int32_t twice;
    __builtin_memcpy(&twice, a, sizeof twice);
    return _mm256_set1_epi32(twice);
  }

  template <int kRows>
  SLUICE_UNROLLED static void step(const Element* a, const int8_t* b, __m256i (&low)[kRows],
                                   __m256i (&high)[kRows]) {
    const __m256i lowBits = _mm256_set1_epi8(15);
    unroll<2>([&](auto p) SLUICE_UNROLLED {
      const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + p.value * 32));
      const __m256i lower = _mm256_and_si256(both, lowBits);
      const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(both, 4), lowBits);
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const Element* const row = a + i.value * kStride + 2 * p.value;
        low[i.value] = _mm256_add_epi16(low[i.value], _mm256_maddubs_epi16(lower, pairAt(row)));
        high[i.value] = _mm256_add_epi16(high[i.value], _mm256_maddubs_epi16(upper, pairAt(row + 4)));
      });
    });
  }

  // Adds both sums of a row to `sums`, or writes them if they are the first, in the order of the columns.
  SLUICE_UNROLLED static void put(__m256i low, __m256i high, bool first, int32_t* sums) {
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i x = _mm256_madd_epi16(_mm256_unpacklo_epi16(low, high), one);
    const __m256i y = _mm256_madd_epi16(_mm256_unpackhi_epi16(low, high), one);
    __m256i sum[2] = {_mm256_permute2x128_si256(x, y, 0x20), _mm256_permute2x128_si256(x, y, 0x31)};
    auto* const to = reinterpret_cast<__m256i*>(sums);
    if (!first)
      unroll<2>([&](auto h) SLUICE_UNROLLED {
        sum[h.value] = _mm256_add_epi32(sum[h.value], _mm256_loadu_si256(to + h.value));
      });
    unroll<2>([&](auto h) SLUICE_UNROLLED { _mm256_storeu_si256(to + h.value, sum[h.value]); });
  }

  template <int kRows>
  SLUICE_NOT_INLINED static void sized(const Element* a, const int8_t* b, int32_t k, int32_t* sums,
                                       Ahead& ahead) {
    for (int32_t at = 0; at < k; at += kSteps * kStep, a += kSteps * kStep, b += kSteps * 64) {
      if (ahead.hasLines()) ahead.fetch();
      __m256i low[kRows] = {}, high[kRows] = {};
      if (k - at >= (kSteps - 1) * kStep + 1)
        unroll<kSteps>([&](auto s)
                           SLUICE_UNROLLED { step(a + s.value * kStep, b + s.value * 64, low, high); });
      else
        for (int32_t s = 0; at + s * kStep < k; ++s) step(a + s * kStep, b + s * 64, low, high);
      unroll<kRows>([&](auto i)
                        SLUICE_UNROLLED { put(low[i.value], high[i.value], at == 0, sums + i.value * kNr); });
    }
  }
};

}  // namespace
}  // namespace sluice::ops
