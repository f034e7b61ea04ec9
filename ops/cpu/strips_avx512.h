// The strips of few_rows.h for vdpbf16ps: some columns of b from its first row to the last one, a few rows at
// a time, for each of which all sums of the strip are loaded and stored once. The sums stay in the first
// cache level beside the rows of b. A strip has whole rows where that allows it, because the memory does best
// with long runs of lines.
//
// Few rows of a add two rows of b at a time, which stores sums in nearly every cycle and still waits for the
// memory. With more rows of a the stores would take longer, so four or eight rows of b share them. A
// processor that adds 512 bits in two halves would take longer for the sums than for reading b. Sizes were
// measured on a Zen 5. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/halves_avx512.h"
#include "ops/cpu/square.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

class StripsAvx512 {
 public:
  static constexpr int32_t kColumns = 64;

  // Whether this is the fastest way on this processor.
  static bool suit() { return !addsInHalves(); }

  // tiles[columns / kColumns][rows][kColumns] = a * b for all rows of a and k elements of each sum.
  template <class Source>
  static void multiply(const Source& source, int32_t rows, int32_t columns, int32_t k, float* tiles) {
    multiply(
        {source.sourceA(0, 0), source.strideA(), source.sourceB(0, 0), source.strideB(), rows, columns, k},
        tiles);
  }

 private:
  // Rows of a up to which two or four rows of b are added at a time; otherwise it is eight.
  static constexpr int32_t kMaxForTwo = 5, kMaxForFour = 7;

  // The first cache level has 48 KiB: kMaxBytesForTwo hold the sums of a strip and two rows of b, kMaxBytes
  // its sums alone.
  static constexpr int64_t kMaxBytesForTwo = 40 << 10, kMaxBytes = 24 << 10;

  // A strip has at most this many columns if whole rows do not fit: wider ones are slower with two rows of b.
  static constexpr int32_t kMaxColumns = 2048;

  // How far after the rows in use b is prefetched. Without that the processor reads at a quarter of the
  // speed.
  static constexpr int64_t kBytesAhead = 6 << 10;

  struct Product {
    const BFloat16* a;
    int64_t lda;
    const BFloat16* b;
    int64_t ldb;
    int32_t rows, columns, k;
  };

  struct Strip {
    Product of;
    int32_t begin, end;  // columns
    int32_t rowsAhead;   // that have kBytesAhead

    // Then its rows are one run of lines.
    bool isWhole() const { return end - begin == of.ldb; }

    // What is prefetched while the rows of b before this one are added: near the end of a strip the next one,
    // and of the last strip what follows b in memory.
    const BFloat16* ahead(int32_t row) const {
      if (isWhole()) return of.b + row * of.ldb + kBytesAhead / int64_t{sizeof(BFloat16)};
      row += rowsAhead;
      if (row < of.k) return of.b + row * of.ldb + begin;
      return end < of.columns ? of.b + (row - of.k) * of.ldb + end : of.b + row * of.ldb;
    }
  };

  SLUICE_NOT_INLINED static void multiply(const Product& of, float* tiles) {
    const int64_t strips = (of.columns - 1) / maxColumns(of) + 1;
    const auto columns = static_cast<int32_t>(roundUp((of.columns - 1) / strips + 1, kColumns));
    const auto rowsAhead = static_cast<int32_t>((kBytesAhead / int64_t{sizeof(BFloat16)} - 1) / columns + 1);
    for (int32_t begin = 0; begin < of.columns; begin += columns)
      multiplyStrip({of, begin, smaller(begin + columns, of.columns), rowsAhead},
                    tiles + int64_t{begin} * of.rows);
  }

  static int64_t maxColumns(const Product& of) {
    const int64_t sums = int64_t{sizeof(float)} * of.rows;
    if (of.rows > kMaxForTwo) return kMaxBytes / sums;
    const int64_t most = kMaxBytesForTwo / (sums + 2 * int64_t{sizeof(BFloat16)});
    const bool isWhole = of.columns == of.ldb && of.columns <= most;
    return isWhole || most < kMaxColumns ? most : kMaxColumns;
  }

  // Until all products were added, a tile has each 32 columns in the order of Interleaved.
  static void multiplyStrip(const Strip& strip, float* tiles) {
    const int32_t rows = strip.of.rows, k = strip.of.k;
    const int64_t floats = rows * roundUp(strip.end - strip.begin, kColumns);
    __builtin_memset(tiles, 0, sizeof(float) * floats);
    int32_t k0 = 0;
    if (rows > kMaxForFour)
      for (; k - k0 >= 8; k0 += 8) add<8>(strip, k0, tiles);
    if (rows > kMaxForTwo)
      for (; k - k0 >= 4; k0 += 4) add<4>(strip, k0, tiles);
    for (; k - k0 >= 2; k0 += 2) add<2>(strip, k0, tiles);
    if (k0 < k) add<1>(strip, k0, tiles);
    for (float* sums = tiles; sums < tiles + floats; sums += 32) {
      __m512 first = _mm512_loadu_ps(sums), second = _mm512_loadu_ps(sums + 16);
      putInOrder(first, second);
      _mm512_storeu_ps(sums, first);
      _mm512_storeu_ps(sums + 16, second);
    }
  }

  // Adds the products of kRows rows of b from k0 on.
  template <int kRows>
  SLUICE_NOT_INLINED static void add(const Strip& strip, int32_t k0, float* tile) {
    const Product of = strip.of;  // not by reference: stores of sums might change it
    const BFloat16* const a = of.a + k0;
    const BFloat16* b = of.b + k0 * of.ldb + strip.begin;
    const BFloat16* ahead = strip.ahead(k0 + kRows);
    const int64_t nextRow = strip.isWhole() ? kColumns : of.ldb;
    const int64_t nextColumns = strip.isWhole() ? kRows * kColumns : kColumns;
    int32_t columns = strip.end - strip.begin;
    for (; columns >= kColumns; columns -= kColumns, b += kColumns, tile += of.rows * kColumns) {
      addTile<kRows>(of, a, tile, [&](int32_t row, int32_t col) SLUICE_UNROLLED {
        return _mm512_loadu_si512(b + row * of.ldb + col);
      });
      unroll<kRows>([&](auto row) SLUICE_UNROLLED {
        fetchNear(ahead + row.value * nextRow);
        fetchNear(ahead + row.value * nextRow + kLineOfBf16);
      });
      ahead += nextColumns;
    }
    if (columns > 0) {
      addTile<kRows>(of, a, tile, [&](int32_t row, int32_t col) SLUICE_UNROLLED {
        return _mm512_maskz_loadu_epi16(makeMask(columns - col), b + row * of.ldb + col);
      });
      for (int32_t row = 0; row < kRows; ++row) fetchNear(ahead + row * nextRow);
    }
  }

  // load(row, col): 32 columns of b.
  template <int kRows, class Load>
  SLUICE_UNROLLED static void addTile(const Product& of, const BFloat16* a, float* tile, Load load) {
    constexpr int32_t kPairs = (kRows + 1) / 2;
    constexpr bool kIsOdd = kRows % 2 != 0;
    Interleaved pairs[kPairs][2];
    unroll<kPairs>([&](auto p) SLUICE_UNROLLED {
      unroll<2>([&](auto h) SLUICE_UNROLLED {
        const __m512i even = load(2 * p.value, 32 * h.value);
        pairs[p.value][h.value] =
            interleave(even, kIsOdd ? _mm512_setzero_si512() : load(2 * p.value + 1, 32 * h.value));
      });
    });
    for (float* const end = tile + of.rows * kColumns; tile < end; a += of.lda, tile += kColumns) {
      __m512 sum[4];
      unroll<4>([&](auto v) SLUICE_UNROLLED { sum[v.value] = _mm512_loadu_ps(tile + v.value * 16); });
      unroll<kPairs>([&](auto p) SLUICE_UNROLLED {
        int32_t pair = a->bits;
        if constexpr (!kIsOdd) __builtin_memcpy(&pair, a + 2 * p.value, 4);
        const auto row = (__m512bh)_mm512_set1_epi32(pair);
        unroll<4>([&](auto v) SLUICE_UNROLLED {
          sum[v.value] =
              _mm512_dpbf16_ps(sum[v.value], row, (__m512bh)pairs[p.value][v.value / 2].half[v.value % 2]);
        });
      });
      unroll<4>([&](auto v) SLUICE_UNROLLED { _mm512_storeu_ps(tile + v.value * 16, sum[v.value]); });
    }
  }
};

}  // namespace
}  // namespace sluice::ops
