// Products of packed panels with AVX-512: tiles of 6 rows and 4 vectors of columns, in 24 accumulators.
//
// The members of a Dot: Element, Sum, kKc, kAStride and kKUnit of the unit (a word of 4 bytes has kKUnit
// elements); kFetchWords: of which something is prefetched; kHalves: two elements of b share a byte, 64 of
// them in its lower half and the next 64 in the upper one; start(a): what the sums of that row begin with,
// before its `words` words; add(sum, column, row): sum plus the products of the words of column with one of
// the row. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/interleaved_rows_avx512.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

template <class Dot>
struct PanelsAvx512 : Dot {
  using Dot::kAStride;
  using typename Dot::Element;
  using typename Dot::Sum;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 64;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kKPart = Dot::kKc;
  static constexpr int32_t kFetchEvery = Dot::kFetchWords * Dot::kKUnit;

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       Sum* tile, Ahead& ahead) {
    first ? multiplyFrom<true>(a, b, k, rows, cols, tile, ahead)
          : multiplyFrom<false>(a, b, k, rows, cols, tile, ahead);
  }

  // multiply() for a whole panel of columns that is packed on the way: b [k, kNr] in memory, to `panel`.
  static void multiplyPacking(const Element* a, const BFloat16* b, int64_t ldb, Element* panel, int32_t k,
                              int32_t rows, bool first, Sum* tile, Ahead& ahead)
    requires(Dot::kPacksOnTheWay)
  {
    using Function = void (*)(const Element*, InterleavedRows, int32_t, Sum*, Ahead&);
    static constexpr Function kByRows[2][6] = {{sized<1, 4, false>, sized<2, 4, false>, sized<3, 4, false>,
                                                sized<4, 4, false>, sized<5, 4, false>, sized<6, 4, false>},
                                               {sized<1, 4, true>, sized<2, 4, true>, sized<3, 4, true>,
                                                sized<4, 4, true>, sized<5, 4, true>, sized<6, 4, true>}};
    kByRows[first][rows - 1](a, InterleavedRows(b, ldb, k, panel), (k + kWord - 1) / kWord, tile, ahead);
  }

 private:
  static constexpr int32_t kWord = Dot::kKUnit;
  static constexpr int32_t kWordsPerFetch = kFetchEvery / kWord;

  // A packed panel.
  struct Panel {
    const Element* b;

    // The next word of each column.
    template <int kVectors>
    SLUICE_UNROLLED void next(__m512i (&column)[kVectors]) {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        if constexpr (Dot::kHalves) {
          const __m512i both = _mm512_loadu_si512(b + v.value / 2 * 16 * kWord);
          column[v.value] =
              _mm512_and_si512(v.value % 2 == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
        } else {
          column[v.value] = _mm512_loadu_si512(b + v.value * 16 * kWord);
        }
      });
      b += kWord * kNr / (Dot::kHalves ? 2 : 1);
    }
  };

  template <bool kFirst>
  static void multiplyFrom(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols,
                           Sum* tile, Ahead& ahead) {
    using Function = void (*)(const Element*, Panel, int32_t, Sum*, Ahead&);
    static constexpr Function kBySize[6][4] = {
        {sized<1, 1, kFirst>, sized<1, 2, kFirst>, sized<1, 3, kFirst>, sized<1, 4, kFirst>},
        {sized<2, 1, kFirst>, sized<2, 2, kFirst>, sized<2, 3, kFirst>, sized<2, 4, kFirst>},
        {sized<3, 1, kFirst>, sized<3, 2, kFirst>, sized<3, 3, kFirst>, sized<3, 4, kFirst>},
        {sized<4, 1, kFirst>, sized<4, 2, kFirst>, sized<4, 3, kFirst>, sized<4, 4, kFirst>},
        {sized<5, 1, kFirst>, sized<5, 2, kFirst>, sized<5, 3, kFirst>, sized<5, 4, kFirst>},
        {sized<6, 1, kFirst>, sized<6, 2, kFirst>, sized<6, 3, kFirst>, sized<6, 4, kFirst>}};
    kBySize[rows - 1][(cols - 1) / 16](a, Panel{b}, (k + kWord - 1) / kWord, tile, ahead);
  }

  // The sums of the next group of rows, which lie behind these ones in the second cache level: not earlier,
  // because the panel streams through the first one.
  static void fetchNextTile(const Sum* tile, int32_t wordsLeft) {
    constexpr int32_t kFetches = 4, kLines = kMr * kNr * 4 / kLineBytes / kFetches;
    if (wordsLeft > kFetches * kWordsPerFetch) return;
    const int32_t later = (wordsLeft - 1) / kWordsPerFetch;
    const char* const from = reinterpret_cast<const char*>(tile + kMr * kNr) + later * kLines * kLineBytes;
    for (int32_t i = 0; i < kLines; ++i) fetchNear(from + i * kLineBytes);
  }

  template <int kRows, int kVectors, bool kFirst, class Columns>
  static void sized(const Element* a, Columns b, int32_t words, Sum* tile, Ahead& ahead) {
    typename Dot::Vector sum[kRows][kVectors];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        typename Dot::Vector before = {};
        if constexpr (!kFirst) __builtin_memcpy(&before, tile + i.value * kNr + v.value * 16, sizeof before);
        sum[i.value][v.value] = Dot::start(a + i.value * kAStride, words, before);
      });
    });
    for (int32_t w = 0; w < words;) {
      ahead.fetch();
      if constexpr (!kFirst) fetchNextTile(tile, words - w);
      for (const int32_t end = smaller(w + kWordsPerFetch, words); w < end; ++w, a += kWord) {
        __m512i column[kVectors];
        b.next(column);
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          int32_t word;
          __builtin_memcpy(&word, a + i.value * kAStride, 4);
          const __m512i row = _mm512_set1_epi32(word);
          unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
            sum[i.value][v.value] = Dot::add(sum[i.value][v.value], column[v.value], row);
          });
        });
      }
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        __builtin_memcpy(tile + i.value * kNr + v.value * 16, &sum[i.value][v.value], 64);
      });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
