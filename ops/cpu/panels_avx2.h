// Products of packed panels with AVX2: tiles of kRowsOfTile rows and kVectorsOfTile vectors of columns, in 12
// accumulators. Every kWordsPerFetch words of the sum something is prefetched. A step of the sum is 12
// multiply-adds and, with one load per row and per vector, few other instructions: a core whose other
// hardware thread belongs to somebody else issues three per cycle, so that every instruction counts
// (docs/performance.md, "Without AVX-512").
//
// The members of a Dot: Element, optionally PanelElement, Sum, kKc, kAStride and kKUnit of the unit (a word
// of 4 bytes of a has kKUnit elements), optionally kInterleavesA; Vector, of 8 sums; Column, 8 columns of so
// many elements of a panel; loadColumns(b, columns): those at b; broadcast(a): the word at a in each element;
// add(sum, column, row): sum += the products of column with row; optionally start(a, words, sum), which
// changes a sum of the row a before the `words` words of that row are multiplied. Internal linkage: see
// blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// Additions to sums in registers. In assembly, because g++ 12 otherwise moves sums of unrolled loops between
// registers, or adds up integers in another order: either way more values are alive than there are registers,
// and every step stores and loads them.

// sum += x * y.
SLUICE_UNROLLED inline void multiplyAdd(__m256& sum, __m256 x, __m256 y) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
}

// sum += terms, by elements of so many bits.
SLUICE_UNROLLED inline void add32(__m256i& sum, __m256i terms) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(terms));
}
SLUICE_UNROLLED inline void add16(__m256i& sum, __m256i terms) {
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(terms));
}

template <class Dot, int32_t kRowsOfTile, int32_t kVectorsOfTile, int32_t kWordsPerFetch = 32>
struct PanelsAvx2 : Dot {
  using Dot::kAStride;
  using typename Dot::Element;
  using typename Dot::Sum;
  using typename Dot::Vector;
  static constexpr int32_t kMr = kRowsOfTile;
  static constexpr int32_t kNr = 8 * kVectorsOfTile;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kKPart = Dot::kKc;
  static constexpr int32_t kFetchEvery = kWordsPerFetch * Dot::kKUnit;
  static constexpr bool kMakesResults = kNr * sizeof(Sum) % kLineBytes == 0 && __is_same(Vector, __m256);

  // B: the elements of the panel.
  template <class B, class AnyAhead>
  static void multiply(const Element* a, const B* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       Sum* tile, AnyAhead& ahead) {
    const int32_t size = (rows - 1) * kVectorsOfTile + (cols - 1) / 8;
    kBySize<B, AnyAhead>[size](a, b, (k + kWord - 1) / kWord, first, tile, ahead);
  }

  // So few rows read panels in the order of memory (sumOfBlock).
  static constexpr bool fetchesPanel(int32_t rows) { return rows <= 2 * kMr; }

  // For rows of tiles that are whole cache lines.
  template <class B, class AnyAhead>
  static void multiplyToResult(const Element* a, const B* b, int32_t k, bool first, const Sum* tile,
                               const ResultTile<float, true>& result, AnyAhead& ahead)
    requires(kMakesResults)
  {
    first ? whole<true>(a, b, k, tile, result, ahead) : whole<false>(a, b, k, tile, result, ahead);
  }

 private:
  static constexpr int32_t kWord = Dot::kKUnit;
  static constexpr int32_t kWordsPerTurn = 4;  // of a loop whose counting takes instructions, too
  static constexpr int32_t kNextRow = InterleavesRows<Dot> ? kWord : kAStride;
  static constexpr int32_t kNextWord = InterleavesRows<Dot> ? kMr * kWord : kWord;

  template <class B, class AnyAhead>
  struct Functions {
    void (*at[kMr * kVectorsOfTile])(const Element*, const B*, int32_t, bool, Sum*, AnyAhead&);
    constexpr auto operator[](int32_t size) const { return at[size]; }
  };
  template <class B, class AnyAhead, int... kSize>
  static constexpr Functions<B, AnyAhead> functions(std::integer_sequence<int, kSize...>) {
    return {{sized<kSize / kVectorsOfTile + 1, kSize % kVectorsOfTile + 1, B, AnyAhead>...}};
  }
  template <class B, class AnyAhead>
  static constexpr Functions<B, AnyAhead> kBySize =
      functions<B, AnyAhead>(std::make_integer_sequence<int, kMr * kVectorsOfTile>());

  // One word of the sum.
  template <int kRows, int kVectors, class B>
  SLUICE_UNROLLED static void step(const Element* a, const B* b, Vector (&sum)[kRows][kVectors]) {
    typename Dot::Column column[kVectors];
    Dot::loadColumns(b, column);
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const auto row = Dot::broadcast(a + i.value * kNextRow);
      unroll<kVectors>([&](auto v)
                           SLUICE_UNROLLED { Dot::add(sum[i.value][v.value], column[v.value], row); });
    });
  }

  // Prefetches the sums of the next group of rows, which follow these ones in the second cache level or
  // beyond, in the last steps: before, the panel would displace them.
  static void fetchNextTile(const Sum* tile, int32_t wordsLeft) {
    constexpr int32_t kFetches = 64 / kWordsPerFetch, kLines = kMr * kNr * 4 / kLineBytes / kFetches;
    if (wordsLeft > kFetches * kWordsPerFetch) return;
    const int32_t later = (wordsLeft - 1) / kWordsPerFetch;
    const char* const from = reinterpret_cast<const char*>(tile + kMr * kNr) + later * kLines * kLineBytes;
    unroll<kLines>([&](auto line) SLUICE_UNROLLED { fetchNear(from + line.value * kLineBytes); });
  }

  // sum += a * b over all words. `tile`: the sums in memory, or null.
  template <int kRows, int kVectors, class B, class AnyAhead>
  SLUICE_UNROLLED static void addWords(const Element* a, const B* b, int32_t words, const Sum* tile,
                                       AnyAhead& ahead, Vector (&sum)[kRows][kVectors]) {
    constexpr int32_t kTurn = kWordsPerTurn * kWord * kNr;
    for (int32_t w = 0; w < words;) {
      if (ahead.hasLines()) ahead.fetch();
      if (tile != nullptr) fetchNextTile(tile, words - w);
      const int32_t here = smaller(kWordsPerFetch, words - w), rest = here % kWordsPerTurn;
      w += here;
      for (const B* const end = b + (here - rest) * kWord * kNr; b != end;) {
        if constexpr (__is_same(AnyAhead, AheadInPanel)) fetchInPanel<kTurn * sizeof(B)>(b);
        unroll<kWordsPerTurn>(
            [&](auto u) SLUICE_UNROLLED { step(a + u.value * kNextWord, b + u.value * kWord * kNr, sum); });
        a += kWordsPerTurn * kNextWord;
        b += kTurn;
      }
      for (int32_t u = 0; u < rest; ++u, a += kNextWord, b += kWord * kNr) step(a, b, sum);
    }
  }

  // The sums of a tile; zeros, whatever is in memory, if `kept` is zero.
  template <int kRows, int kVectors>
  SLUICE_UNROLLED static void load(const Sum* tile, __m256i kept, Vector (&sum)[kRows][kVectors]) {
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        const auto* const before = reinterpret_cast<const __m256i*>(tile + i.value * kNr + v.value * 8);
        sum[i.value][v.value] = (Vector)_mm256_and_si256(_mm256_loadu_si256(before), kept);
      });
    });
  }

  template <int kRows, int kVectors, class B, class AnyAhead>
  SLUICE_NOT_INLINED static void sized(const Element* a, const B* b, int32_t words, bool first, Sum* tile,
                                       AnyAhead& ahead) {
    Vector sum[kRows][kVectors];
    load(tile, _mm256_set1_epi32(first ? 0 : -1), sum);
    if constexpr (requires { Dot::start; })
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
          Dot::start(a + i.value * kNextRow, words, sum[i.value][v.value]);
        });
      });
    addWords(a, b, words, tile, ahead, sum);
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        __builtin_memcpy(tile + i.value * kNr + v.value * 8, &sum[i.value][v.value], 32);
      });
    });
  }

  // The result is not a copy: that would wait until all stores before it are in the caches.
  template <bool kFirst, class B, class AnyAhead>
  SLUICE_NOT_INLINED static void whole(const Element* a, const B* b, int32_t words, const Sum* tile,
                                       const ResultTile<float, true>& result, AnyAhead& ahead) {
    __m256 sum[kMr][kVectorsOfTile] = {};
    if constexpr (!kFirst) load(tile, _mm256_set1_epi32(-1), sum);
    addWords(a, b, words, kFirst ? nullptr : tile, ahead, sum);
    const __m256 alpha = _mm256_set1_ps(result.alpha);
    unroll<kMr>([&](auto i) SLUICE_UNROLLED {
      float* const to = result.data + i.value * result.ld;
      unroll<kVectorsOfTile>([&](auto v) SLUICE_UNROLLED {
        __m256 x = sum[i.value][v.value];
        if (result.alpha != 1) x = _mm256_mul_ps(x, alpha);
        if (result.adds)
          _mm256_storeu_ps(to + v.value * 8, _mm256_add_ps(_mm256_loadu_ps(to + v.value * 8), x));
        else
          _mm256_stream_ps(to + v.value * 8, x);
      });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
