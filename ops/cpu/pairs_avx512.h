// The row pairs of few_rows.h for vdpbf16ps: two whole rows of b at a time, in the order of memory. The tiles
// of the sums, which are loaded and stored for each pair, must stay in the first cache level, and a processor
// that adds 512 bits in two halves would take longer for them than for reading b.
//
// The memory does best with one long run of lines: blocks of 128 rows are read at three quarters of the speed
// (Zen 5, one thread). Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/halves_avx512.h"
#include "ops/cpu/interleaved_avx512.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

class PairsAvx512 {
 public:
  static constexpr int32_t kColumns = 64;

  // Whether this is the fastest way for so many rows of a.
  static bool suits(int32_t rows, int32_t columns) {
    return rows <= kMostRows && sizeof(float) * rows * columns <= kMostTileBytes && !addsInHalves();
  }

  // tiles[columns / kColumns][rows][kColumns] = a * b for all rows of a, whole rows of b and k elements of
  // each sum.
  template <class Source>
  static void multiply(const Source& source, int32_t rows, int32_t columns, int32_t k, float* tiles) {
    using Function = void (*)(Product, float*);
    static constexpr Function kByRows[kMostRows] = {multiplyRows<1>, multiplyRows<2>, multiplyRows<3>,
                                                    multiplyRows<4>, multiplyRows<5>};
    kByRows[rows - 1]({source.sourceA(0, 0), source.strideA(), source.sourceB(0, 0), columns, k}, tiles);
  }

 private:
  static constexpr int32_t kMostRows = 5;
  static constexpr size_t kMostTileBytes = size_t{32} << 10;  // of the 48 KiB of a Zen 5

  // How far ahead of its use b is prefetched, as near as the sums leave room. Without that the processor,
  // which takes two rows for two runs, reads at a quarter of the speed.
  static constexpr int32_t kBytesAhead = 12 << 10;

  struct Product {
    const BFloat16* a;
    int64_t lda;
    const BFloat16* b;
    int32_t columns, k;
  };

  // Until all pairs were added, a tile has each 32 columns in the order of Interleaved.
  template <int kRows>
  static void multiplyRows(Product of, float* tiles) {
    const int32_t floats = kRows * roundUp(of.columns, kColumns);
    __builtin_memset(tiles, 0, sizeof(float) * floats);
    int32_t k0 = 0;
    for (; of.k - k0 > 1; k0 += 2) addPair<true, kRows>(of, k0, tiles);
    if (k0 < of.k) addPair<false, kRows>(of, k0, tiles);
    for (float* sums = tiles; sums < tiles + floats; sums += 32) {
      __m512 first = _mm512_loadu_ps(sums), second = _mm512_loadu_ps(sums + 16);
      putInOrder(first, second);
      _mm512_storeu_ps(sums, first);
      _mm512_storeu_ps(sums + 16, second);
    }
  }

  // kIsTwo: the elements k0 and k0 + 1 of the sums, otherwise only k0.
  template <bool kIsTwo, int kRows>
  SLUICE_UNROLLED static void addPair(const Product& of, int32_t k0, float* tile) {
    __m512i row[kRows];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const BFloat16* const a = of.a + i.value * of.lda + k0;
      int32_t pair = a->bits;
      if constexpr (kIsTwo) __builtin_memcpy(&pair, a, 4);
      row[i.value] = _mm512_set1_epi32(pair);
    });
    const BFloat16* const even = of.b + int64_t{k0} * of.columns;
    const BFloat16* const odd = even + of.columns;
    const auto* ahead = reinterpret_cast<const char*>(even) + kBytesAhead;
    int32_t col = 0;
    for (; of.columns - col >= kColumns; col += kColumns, tile += kRows * kColumns) {
      addTile(row, tile, [&](int32_t first) SLUICE_UNROLLED {
        const __m512i none = _mm512_setzero_si512();
        return interleave(_mm512_loadu_si512(even + col + first),
                          kIsTwo ? _mm512_loadu_si512(odd + col + first) : none);
      });
      for (int32_t line = 0; line < 4; ++line, ahead += kLineBytes) fetchNear(ahead);
    }
    if (col < of.columns)
      addTile(row, tile, [&](int32_t first) SLUICE_UNROLLED {
        const __mmask32 mask = maskOf(of.columns - col - first);
        return interleave(_mm512_maskz_loadu_epi16(mask, even + col + first),
                          _mm512_maskz_loadu_epi16(kIsTwo ? mask : 0, odd + col + first));
      });
  }

  // columnsFrom(first): the pairs of 32 columns of the tile from `first` on.
  template <int kRows, class ColumnsFrom>
  SLUICE_UNROLLED static void addTile(const __m512i (&row)[kRows], float* tile, ColumnsFrom columnsFrom) {
    const Interleaved columns[2] = {columnsFrom(0), columnsFrom(32)};
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      float* const sums = tile + i.value * kColumns;
      __m512 sum[4];
      unroll<4>([&](auto v) SLUICE_UNROLLED {
        sum[v.value] = _mm512_dpbf16_ps(_mm512_loadu_ps(sums + v.value * 16), (__m512bh)row[i.value],
                                        (__m512bh)columns[v.value / 2].half[v.value % 2]);
      });
      unroll<4>([&](auto v) SLUICE_UNROLLED { _mm512_storeu_ps(sums + v.value * 16, sum[v.value]); });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
