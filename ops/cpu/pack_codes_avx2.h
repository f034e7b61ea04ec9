// Packing for the AVX2 units of codes, which multiply words of kKUnit codes: two as 16 bits, or four bytes.
//
// A packed: [rows][kAStride], the codes of the sum in order, each widened to an Element. B packed:
// [k / kKUnit][kNr] words of codes of 8 bits. If Unit::kShiftsCodes, both are as in shifted_codes.h. A is
// padded with zeros to whole words, so the pads of b do not count; a panel of columns is written by squares
// of kSquareCodes elements. Nothing is prefetched: products of codes have no path for few rows. Internal
// linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/shifted_codes.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackCodesAvx2 {
  using Element = typename Unit::Element;

  static void copyRows(const int8_t* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i, src += ld, dst += Unit::kAStride) {
      for (int32_t j = 0; j < k; ++j) dst[j] = static_cast<Element>(src[j]);
      for (int32_t j = k; j % kWord != 0; ++j) dst[j] = 0;
      if constexpr (Unit::kShiftsCodes) keepSum<Unit>(src, k, dst);
    }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const int8_t* src, int64_t ld, int32_t cols, int32_t k, int8_t* dst,
                          const int8_t*) {
    for (int32_t r = 0; r < k; r += kWord, dst += kWord * kNr) {
      int8_t edge[kWord][kNr] = {};
      const int8_t* row[kWord];
      for (int32_t h = 0; h < kWord; ++h) {
        row[h] = src + (r + h) * ld;
        if (cols == kNr && r + h < k) continue;
        if (r + h < k) __builtin_memcpy(edge[h], row[h], static_cast<size_t>(cols));
        row[h] = edge[h];
      }
      interleave(row, dst);
    }
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const int8_t* src, int64_t ld, int32_t cols, int32_t k, int8_t* dst,
                             const int8_t*) {
    for (int32_t r = 0; r < k; r += kSquareCodes)
      for (int32_t j = 0; j < kNr; j += kSquareColumns) {
        int8_t* const to = dst + r * kNr + kWord * j;
        const int8_t* const from = src + j * ld + r;
        if (cols - j >= kSquareColumns && k - r >= kSquareCodes) {
          transposeSquare(from, ld, to);
          continue;
        }
        int8_t square[kSquareColumns][kSquareCodes] = {};
        for (int32_t i = 0; i < kSquareColumns && j + i < cols; ++i)
          __builtin_memcpy(square[i], from + i * ld, static_cast<size_t>(smaller(kSquareCodes, k - r)));
        transposeSquare(square[0], kSquareCodes, to);
      }
  }

 private:
  static constexpr int32_t kNr = Unit::kNr;
  static constexpr int32_t kWord = Unit::kKUnit;
  static constexpr int32_t kSquareColumns = 8;
  static constexpr int32_t kSquareCodes = 8 * kWord;
  static_assert((kWord == 4 || (kWord == 2 && !Unit::kShiftsCodes)) && kNr % kSquareColumns == 0);

  static void transposeSquare(const int8_t* from, int64_t ld, int8_t* to) {
    if constexpr (kWord == 2) {
      transposeEight(from, ld, to, kWord * kNr);
    } else {
      __m256i words[8];
      for (int32_t i = 0; i < 8; ++i)
        words[i] = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * ld)),
                                    _mm256_set1_epi8(kFlip<Unit>));
      transposePairs(words);
      for (int32_t i = 0; i < 8; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * kWord * kNr), words[i]);
    }
  }

  // The words of 16 columns.
  static void interleave(const int8_t* const (&row)[kWord], int8_t* dst) {
    static_assert(kNr == 16);
    const auto codes = [&](int32_t h) {
      return _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row[h])),
                           _mm_set1_epi8(kFlip<Unit>));
    };
    const auto store = [&](int32_t at, __m128i words) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst) + at, words);
    };
    const __m128i pairs[2] = {_mm_unpacklo_epi8(codes(0), codes(1)), _mm_unpackhi_epi8(codes(0), codes(1))};
    for (int32_t h = 0; h < 2; ++h) {
      if constexpr (kWord == 2) {
        store(h, pairs[h]);
      } else {
        const __m128i next =
            h == 0 ? _mm_unpacklo_epi8(codes(2), codes(3)) : _mm_unpackhi_epi8(codes(2), codes(3));
        store(2 * h, _mm_unpacklo_epi16(pairs[h], next));
        store(2 * h + 1, _mm_unpackhi_epi16(pairs[h], next));
      }
    }
  }
};

}  // namespace
}  // namespace sluice::ops
