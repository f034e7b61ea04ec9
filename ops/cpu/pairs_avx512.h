// The row pairs of few_rows.h for vdpbf16ps: two whole rows of b at a time, in the order of memory. The tiles
// of the sums, which are loaded and stored for each pair, must stay in the first cache level, and a processor
// that adds 512 bits in two halves would take longer for them than for reading b.
//
// Measured on a Zen 5 (b of 2048 x 1536 and of 768 x 2048, from memory, one thread): 36 to 41 GB/s, where
// reading by blocks of 128 rows gets 26 to 33, because the memory and the processor's own prefetching do best
// with one long run of lines. Internal linkage: see blocked_product.h.
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

  // tiles[columns / kColumns][rows][kColumns] += a * b for the elements k0 and k0 + 1 of the sum, or only k0
  // if that is the last one. Until the last ones were added, a tile has each 32 columns in the order of
  // Interleaved.
  template <class Source>
  static void add(const Source& source, int32_t rows, int32_t columns, int32_t k0, int32_t k, float* tiles) {
    using Function = void (*)(const Pair&, float*);
    static constexpr Function kByRows[kMostRows] = {addTo<1>, addTo<2>, addTo<3>, addTo<4>, addTo<5>};
    kByRows[rows - 1](
        {source.sourceA(0, k0), source.strideA(), source.sourceB(0, k0), columns, k - k0 > 1, k - k0 <= 2},
        tiles);
  }

 private:
  static constexpr int32_t kMostRows = 5;
  static constexpr size_t kMostTileBytes = size_t{32} << 10;  // of the 48 KiB of a Zen 5

  // How far ahead of its use b is prefetched into the second cache level: farther than the processor does.
  static constexpr int32_t kBytesAhead = 32 << 10;

  struct Pair {
    const BFloat16* a;
    int64_t lda;
    const BFloat16* b;
    int32_t columns;
    bool isTwo, isLast;
  };

  template <int kRows>
  static void addTo(const Pair& of, float* tile) {
    __m512i row[kRows];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const BFloat16* const a = of.a + i.value * of.lda;
      int32_t pair = a->bits;
      if (of.isTwo) __builtin_memcpy(&pair, a, 4);
      row[i.value] = _mm512_set1_epi32(pair);
    });
    const auto* ahead = reinterpret_cast<const char*>(of.b) + kBytesAhead;
    int32_t col = 0;
    if (of.isTwo)
      for (; of.columns - col >= kColumns; col += kColumns, tile += kRows * kColumns) {
        for (int32_t line = 0; line < 4; ++line, ahead += kLineBytes) fetchSoon(ahead);
        addPanel<true>(of, row, col, tile);
      }
    for (; col < of.columns; col += kColumns, tile += kRows * kColumns) addPanel<false>(of, row, col, tile);
  }

  // kWhole: two rows of kColumns columns.
  template <bool kWhole, int kRows>
  SLUICE_UNROLLED static void addPanel(const Pair& of, const __m512i (&row)[kRows], int32_t col,
                                       float* tile) {
    Interleaved column[2];
    unroll<2>([&](auto h) SLUICE_UNROLLED {
      const BFloat16* const even = of.b + col + h.value * 32;
      const BFloat16* const odd = even + of.columns;
      if constexpr (kWhole) {
        column[h.value] = interleave(_mm512_loadu_si512(even), _mm512_loadu_si512(odd));
      } else {
        const __mmask32 mask = maskOf(of.columns - col - h.value * 32);
        column[h.value] = interleave(_mm512_maskz_loadu_epi16(mask, even),
                                     _mm512_maskz_loadu_epi16(of.isTwo ? mask : 0, odd));
      }
    });
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      __m512 sum[4];
      unroll<4>([&](auto v) SLUICE_UNROLLED {
        sum[v.value] =
            _mm512_dpbf16_ps(_mm512_loadu_ps(tile + i.value * kColumns + v.value * 16),
                             (__m512bh)row[i.value], (__m512bh)column[v.value / 2].half[v.value % 2]);
      });
      if (of.isLast) {
        putInOrder(sum[0], sum[1]);
        putInOrder(sum[2], sum[3]);
      }
      unroll<4>([&](auto v) SLUICE_UNROLLED {
        _mm512_storeu_ps(tile + i.value * kColumns + v.value * 16, sum[v.value]);
      });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
