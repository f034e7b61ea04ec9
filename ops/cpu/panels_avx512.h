// Products of packed panels with AVX-512: tiles of 6 rows and 4 vectors of columns, in 24 accumulators.
//
// The members of a Dot: Element, Sum, kKc, kAStride and kKUnit of the unit (a word of 4 bytes has kKUnit
// elements); kFetchWords: of which something is prefetched; start(a): what the sums of that row begin with,
// before its `words` words; add(sum, column, row): sum plus the products of the words of column with one of
// the row. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/halves_avx512.h"
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
  static constexpr bool kMultipliesBf16 = __is_same(Element, uint16_t);

  // Two groups of rows wait less with prefetching where 512 bits are added at once.
  static bool streams(int32_t groups) { return groups <= (addsInHalves() ? 2 : 1); }
  // With one or two rows, or where 512 bits are added in two halves, the processor does it best by itself.
  static bool fetchesPanel(int32_t rows)
    requires kMultipliesBf16
  {
    return rows > 2 && rows <= kMr && !addsInHalves();
  }

  template <class AnyAhead>
  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       Sum* tile, AnyAhead& ahead) {
    first ? multiplyFrom<true>(a, b, k, rows, cols, tile, ahead)
          : multiplyFrom<false>(a, b, k, rows, cols, tile, ahead);
  }

  template <class T, bool kStreams, class AnyAhead>
  static void multiplyToResult(const Element* a, const Element* b, int32_t k, bool first, const Sum* tile,
                               const ResultTile<T, kStreams>& result, AnyAhead& ahead)
    requires kMultipliesBf16
  {
    const int32_t words = (k + kWord - 1) / kWord;
    const Whole<T, kStreams> whole{{tile}, result};
    if (!first)
      sized<kMr, kNr / 16, false>(PackedRows{a}, Panel{b}, words, whole, ahead);
    else if constexpr (kStreams)  // gradients, whose sums are often short
      inlined<kMr, kNr / 16, true>(PackedRows{a}, Panel{b}, words, whole, ahead);
    else
      sized<kMr, kNr / 16, true>(PackedRows{a}, Panel{b}, words, whole, ahead);
  }

  // Products in place of rows of b, with the rows of a as columns. Where 512 bits are added at once, a tile
  // of few vectors of columns takes twice the rows, or its sums would wait for each other, and has whole
  // vectors; and packing b takes less time where many of these columns would have no use.
  static bool readsInPlace(int32_t rows)
    requires kMultipliesBf16
  {
    return addsInHalves() || rows <= 16 || (rows > 24 && rows <= 48) || rows > 60;
  }
  static int32_t rowsInPlace(int32_t cols)
    requires kMultipliesBf16
  {
    return cols <= kMaxForTwice && !addsInHalves() ? 2 * kMr : kMr;
  }
  // Three quarters of a vector are two additions of half a vector.
  static int32_t columnsInPlace(int32_t cols)
    requires kMultipliesBf16
  {
    if (addsInHalves()) return cols;
    if (cols <= kMaxForTwice) return cols <= 16 ? 16 : kMaxForTwice;
    return (cols - 1) / 4 % 4 == 2 ? cols + 4 : cols;
  }

  // tile += a * b for rows of bf16 in memory, instead of packed ones, and a multiple of kKUnit elements.
  static void multiplyInPlace(const BFloat16* a, int64_t lda, const Element* b, int32_t k, int32_t rows,
                              int32_t cols, Sum* tile, Ahead& ahead)
    requires kMultipliesBf16
  {
    using Function = void (*)(RowsInMemory, Panel, int32_t, const Tile&, Ahead&);
    // Less than a vector has one of its own; 60 columns would need more registers than there are.
    static constexpr Function kWhole[16] = {parts<6, 4>,  parts<6, 4>,  parts<6, 4>,  parts<6, 4>,
                                            parts<6, 5>,  parts<6, 6>,  parts<6, 7>,  parts<6, 8>,
                                            parts<6, 9>,  parts<6, 10>, parts<6, 11>, parts<6, 12>,
                                            parts<6, 13>, parts<6, 14>, parts<6, 16>, parts<6, 16>};
    static constexpr Function kFewer[5][4] = {{parts<1, 4>, parts<1, 8>, parts<1, 12>, parts<1, 16>},
                                              {parts<2, 4>, parts<2, 8>, parts<2, 12>, parts<2, 16>},
                                              {parts<3, 4>, parts<3, 8>, parts<3, 12>, parts<3, 16>},
                                              {parts<4, 4>, parts<4, 8>, parts<4, 12>, parts<4, 16>},
                                              {parts<5, 4>, parts<5, 8>, parts<5, 12>, parts<5, 16>}};
    if (rows == 2 * kMr)
      return (cols <= 16 ? parts<2 * kMr, 4> : parts<2 * kMr, 8>)(RowsInMemory{a, lda}, Panel{b}, k / kWord,
                                                                  Tile{{tile}}, ahead);
    const Function function = rows == kMr ? kWhole[(cols - 1) / 4] : kFewer[rows - 1][(cols - 1) / 16];
    function(RowsInMemory{a, lda}, Panel{b}, k / kWord, Tile{{tile}}, ahead);
  }

 private:
  static constexpr int32_t kWord = Dot::kKUnit;
  static constexpr int32_t kWordsPerFetch = kFetchEvery / kWord;
  static constexpr int32_t kPanelBytesAhead = 8 << 10;  // of fetchesPanel()
  static constexpr int32_t kMaxForTwice = 32;           // columns of which a tile may have 2 * kMr rows

  struct PackedRows {
    const Element* a;
    const Element* row(int32_t i) const { return a + i * kAStride; }
  };
  struct RowsInMemory {
    const BFloat16* a;
    int64_t ld;
    const BFloat16* row(int32_t i) const { return a + i * ld; }
  };

  // A packed panel.
  struct Panel {
    const Element* b;

    // The next word of each column.
    template <int kVectors>
    SLUICE_UNROLLED void next(__m512i (&column)[kVectors]) {
      unroll<kVectors>(
          [&](auto v) SLUICE_UNROLLED { column[v.value] = _mm512_loadu_si512(b + v.value * 16 * kWord); });
      b += kWord * kNr;
    }
    SLUICE_UNROLLED void fetchAhead() const {
      unroll<kNr / 16>([&](auto line) SLUICE_UNROLLED {
        fetchSoon(reinterpret_cast<const char*>(b) + kPanelBytesAhead + line.value * kLineBytes);
      });
    }
    // Returns the words of four columns.
    SLUICE_UNROLLED __m128i quarter(int32_t column) const {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + column * kWord));
    }
  };

  template <bool kFirst, class AnyAhead>
  static void multiplyFrom(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols,
                           Sum* tile, AnyAhead& ahead) {
    using Function = void (*)(PackedRows, Panel, int32_t, const Tile&, AnyAhead&);
    const int32_t words = (k + kWord - 1) / kWord;
    if constexpr (!__is_same(AnyAhead, Ahead)) {  // whole panels
      static constexpr Function kByRows[6] = {sized<1, 4, kFirst>, sized<2, 4, kFirst>, sized<3, 4, kFirst>,
                                              sized<4, 4, kFirst>, sized<5, 4, kFirst>, sized<6, 4, kFirst>};
      kByRows[rows - 1](PackedRows{a}, Panel{b}, words, Tile{{tile}}, ahead);
    } else {
      static constexpr Function kBySize[6][4] = {
          {sized<1, 1, kFirst>, sized<1, 2, kFirst>, sized<1, 3, kFirst>, sized<1, 4, kFirst>},
          {sized<2, 1, kFirst>, sized<2, 2, kFirst>, sized<2, 3, kFirst>, sized<2, 4, kFirst>},
          {sized<3, 1, kFirst>, sized<3, 2, kFirst>, sized<3, 3, kFirst>, sized<3, 4, kFirst>},
          {sized<4, 1, kFirst>, sized<4, 2, kFirst>, sized<4, 3, kFirst>, sized<4, 4, kFirst>},
          {sized<5, 1, kFirst>, sized<5, 2, kFirst>, sized<5, 3, kFirst>, sized<5, 4, kFirst>},
          {sized<6, 1, kFirst>, sized<6, 2, kFirst>, sized<6, 3, kFirst>, sized<6, 4, kFirst>}};
      kBySize[rows - 1][(cols - 1) / 16](PackedRows{a}, Panel{b}, words, Tile{{tile}}, ahead);
    }
  }

  // Where sums come from
  template <class AnySum>
  struct Before {
    AnySum* at;
    SLUICE_UNROLLED typename Dot::Vector before(int32_t row, int32_t vector) const {
      typename Dot::Vector sum;
      __builtin_memcpy(&sum, at + row * kNr + vector * 16, sizeof sum);
      return sum;
    }
  };
  // and go to: a tile,
  struct Tile : Before<Sum> {
    using Before<Sum>::at;
    template <int kVectors>
    SLUICE_UNROLLED void put(int32_t row, const typename Dot::Vector (&sums)[kVectors]) const {
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        __builtin_memcpy(at + row * kNr + v.value * 16, &sums[v.value], 64);
      });
    }
    // Four columns of two rows.
    SLUICE_UNROLLED __m256 twoBefore(int32_t row, int32_t column) const {
      return _mm256_loadu2_m128(at + (row + 1) * kNr + column, at + row * kNr + column);
    }
    SLUICE_UNROLLED void putTwo(int32_t row, int32_t column, __m256 sums) const {
      _mm256_storeu2_m128(at + (row + 1) * kNr + column, at + row * kNr + column, sums);
    }
  };
  // or the result.
  template <class T, bool kStreams>
  struct Whole : Before<const Sum> {
    ResultTile<T, kStreams> to;
    SLUICE_UNROLLED void put(int32_t row, __m512 (&sums)[kNr / 16]) const {
      if (to.alpha != 1)
        unroll<kNr / 16>([&](auto v) SLUICE_UNROLLED {
          sums[v.value] = _mm512_mul_ps(sums[v.value], _mm512_set1_ps(to.alpha));
        });
      T* const at = to.data + row * to.ld;
      if constexpr (__is_same(T, float))
        if (to.adds) {
          unroll<kNr / 16>([&](auto v) SLUICE_UNROLLED {
            float* const here = at + v.value * 16;
            _mm512_storeu_ps(here, _mm512_add_ps(_mm512_loadu_ps(here), sums[v.value]));
          });
          return;
        }
      unroll<sizeof(T)>([&](auto v) SLUICE_UNROLLED {
        __m512i line;
        if constexpr (__is_same(T, float))
          line = _mm512_castps_si512(sums[v.value]);
        else
          line = (__m512i)_mm512_cvtne2ps_pbh(sums[2 * v.value + 1], sums[2 * v.value]);
        if constexpr (kStreams)
          _mm512_stream_si512(reinterpret_cast<__m512i*>(at) + v.value, line);
        else
          _mm512_storeu_si512(reinterpret_cast<__m512i*>(at) + v.value, line);
      });
    }
  };

  // Tiles of some quarters of vectors.
  template <int kRows, int kQuarters>
  static void parts(RowsInMemory a, Panel b, int32_t words, const Tile& tile, Ahead& ahead) {
    sized<kRows, kQuarters / 4, false, kQuarters % 4>(a, b, words, tile, ahead);
  }

  // The sums of the next group of rows, which lie behind these ones in the second cache level: not earlier,
  // because the panel streams through the first one.
  template <int kRows>
  static void fetchNextTile(const Sum* tile, int32_t wordsLeft) {
    constexpr int32_t kFetches = 4, kLines = kRows * kNr * 4 / kLineBytes / kFetches;
    if (wordsLeft > kFetches * kWordsPerFetch) return;
    const int32_t later = (wordsLeft - 1) / kWordsPerFetch;
    const char* const from = reinterpret_cast<const char*>(tile + kRows * kNr) + later * kLines * kLineBytes;
    for (int32_t i = 0; i < kLines; ++i) fetchNear(from + i * kLineBytes);
  }

  // The result is not a copy: that would wait until all stores before it are in the caches.
  template <int kRows, int kVectors, bool kFirst, int kQuarters = 0, class Rows, class Result, class AnyAhead>
  SLUICE_NOT_INLINED static void sized(Rows a, Panel b, int32_t words, const Result& result,
                                       AnyAhead& ahead) {
    inlined<kRows, kVectors, kFirst, kQuarters>(a, b, words, result, ahead);
  }

  // kQuarters: how many quarters of one more vector are used. Processors that add 512 bits in two halves save
  // one half with two quarters; a single quarter shares half a vector with the quarter of the next row.
  template <int kRows, int kVectors, bool kFirst, int kQuarters = 0, class Rows, class Result, class AnyAhead>
  SLUICE_UNROLLED static void inlined(Rows a, Panel b, int32_t words, const Result& result, AnyAhead& ahead) {
    constexpr bool kHalf = kQuarters >= 2;
    constexpr int kAll = kVectors + (kHalf ? 1 : 0);
    constexpr int kQuarterAt = kQuarters % 2 == 0 ? 0 : kVectors * 16 + (kHalf ? 8 : 0);
    constexpr int kPairs = kQuarters % 2 == 0 ? 0 : kRows / 2;
    static_assert(kPairs == 0 || kRows % 2 == 0);
    __m256 sumOfTwo[kRows];
    if constexpr (kPairs > 0)
      unroll<kPairs>([&](auto p)
                         SLUICE_UNROLLED { sumOfTwo[p.value] = result.twoBefore(2 * p.value, kQuarterAt); });
    typename Dot::Vector sum[kRows][kAll];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kAll>([&](auto v) SLUICE_UNROLLED {
        typename Dot::Vector before = {};
        if constexpr (!kFirst) before = result.before(i.value, v.value);
        sum[i.value][v.value] = Dot::start(a.row(i.value), words, before);
      });
    });
    for (int32_t w = 0; w < words;) {
      ahead.fetch();
      if constexpr (!kFirst) fetchNextTile<kRows>(result.at, words - w);
      for (const int32_t end = smaller(w + kWordsPerFetch, words); w < end; ++w, a.a += kWord) {
        __m512i column[kAll];
        __m128i quarter = {};
        if constexpr (kPairs > 0) quarter = b.quarter(kQuarterAt);
        if constexpr (__is_same(AnyAhead, AheadInPanel)) b.fetchAhead();
        b.next(column);
        __m512i before = {};
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          int32_t word;
          __builtin_memcpy(&word, a.row(i.value), 4);
          const __m512i row = _mm512_set1_epi32(word);
          unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
            sum[i.value][v.value] = Dot::add(sum[i.value][v.value], column[v.value], row);
          });
          if constexpr (kHalf)
            sum[i.value][kVectors] = Dot::addHalf(sum[i.value][kVectors], column[kVectors], row);
          if constexpr (kPairs > 0) {
            if constexpr (i.value % 2 == 1)
              sumOfTwo[i.value / 2] = Dot::addQuarters(sumOfTwo[i.value / 2], quarter, before, row);
            before = row;
          }
        });
      }
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED { result.put(i.value, sum[i.value]); });
    if constexpr (kPairs > 0)
      unroll<kPairs>([&](auto p)
                         SLUICE_UNROLLED { result.putTwo(2 * p.value, kQuarterAt, sumOfTwo[p.value]); });
  }
};

}  // namespace
}  // namespace sluice::ops
