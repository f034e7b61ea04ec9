// Products of packed panels with AVX2: tiles of 6 rows and 2 vectors of columns, in 12 accumulators.
//
// The members of a Dot: Element, optionally PanelElement, Sum, kKc, kAStride and kKUnit of the unit (a word
// of 4 bytes of a has kKUnit elements); Vector, of 8 sums; Column, 8 columns of so many elements of a panel;
// loadColumns(b, columns): those at b; add(sum, column, row): sum plus the products of column with the words
// of row. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

template <class Dot>
struct PanelsAvx2 : Dot {
  using Panel = PanelElement<Dot>;
  using Dot::kAStride;
  using typename Dot::Element;
  using typename Dot::Sum;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 16;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kKPart = Dot::kKc;
  static constexpr int32_t kFetchEvery = 16 * Dot::kKUnit;

  static void multiply(const Element* a, const Panel* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       Sum* tile, Ahead& ahead) {
    using Function = void (*)(const Element*, const Panel*, int32_t, bool, Sum*, Ahead&);
    static constexpr Function kBySize[6][2] = {{sized<1, 1>, sized<1, 2>}, {sized<2, 1>, sized<2, 2>},
                                               {sized<3, 1>, sized<3, 2>}, {sized<4, 1>, sized<4, 2>},
                                               {sized<5, 1>, sized<5, 2>}, {sized<6, 1>, sized<6, 2>}};
    kBySize[rows - 1][(cols - 1) / 8](a, b, (k + kWord - 1) / kWord, first, tile, ahead);
  }

 private:
  static constexpr int32_t kWord = Dot::kKUnit;
  static constexpr int32_t kWordsPerFetch = kFetchEvery / kWord;
  using Vector = typename Dot::Vector;

  template <int kRows, int kVectors>
  static void sized(const Element* a, const Panel* b, int32_t words, bool first, Sum* tile, Ahead& ahead) {
    // Loading zeros that were just stored is cheaper than g++'s code for two ways to begin.
    if (first) __builtin_memset(tile, 0, sizeof(Sum) * kRows * kNr);
    Vector sum[kRows][kVectors];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        __builtin_memcpy(&sum[i.value][v.value], tile + i.value * kNr + v.value * 8, 32);
      });
    });
    for (int32_t w = 0; w < words;) {
      ahead.fetch();
      for (const int32_t end = smaller(w + kWordsPerFetch, words); w < end;
           ++w, a += kWord, b += kWord * kNr) {
        typename Dot::Column column[kVectors];
        Dot::loadColumns(b, column);
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          int32_t word;
          __builtin_memcpy(&word, a + i.value * kAStride, 4);
          const __m256i row = _mm256_set1_epi32(word);
          unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
            sum[i.value][v.value] = Dot::add(sum[i.value][v.value], column[v.value], row);
          });
        });
      }
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        __builtin_memcpy(tile + i.value * kNr + v.value * 8, &sum[i.value][v.value], 32);
      });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
