// The AVX-512 units: of bf16 by vdpbf16ps, and of codes. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/columns_avx512.h"
#include "ops/cpu/next_panel_avx512.h"
#include "ops/cpu/panels_avx512.h"
#include "ops/cpu/shifted_codes.h"
#include "ops/cpu/square.h"
#include "ops/cpu/strips_avx512.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct DotAvx512 {
  using Element = uint16_t;
  using Sum = float;
  using Vector = __m512;
  using NextPanel = NextPanelAvx512;
  static constexpr int32_t kKc = 1024;
  static constexpr int32_t kAStride = kKc + 32;  // a power of two would share sets of the caches
  static constexpr int32_t kKUnit = 2;
  static constexpr int32_t kFetchWords = 8;

  static Vector start(const void*, int32_t, Vector before) { return before; }
  static Vector add(Vector sum, __m512i column, __m512i row) {
    return _mm512_dpbf16_ps(sum, (__m512bh)row, (__m512bh)column);
  }
  static Vector addHalf(Vector sum, __m512i column, __m512i row) {
    return _mm512_castps256_ps512(_mm256_dpbf16_ps(_mm512_castps512_ps256(sum),
                                                   (__m256bh)_mm512_castsi512_si256(row),
                                                   (__m256bh)_mm512_castsi512_si256(column)));
  }
  // Adds the products of four columns with two rows.
  static __m256 addQuarters(__m256 sums, __m128i column, __m512i row, __m512i next) {
    const __m256i rows = _mm256_blend_epi32(_mm512_castsi512_si256(row), _mm512_castsi512_si256(next), 0xf0);
    return _mm256_dpbf16_ps(sums, (__m256bh)rows, (__m256bh)_mm256_broadcastsi128_si256(column));
  }
};

struct UnitAvx512 : PanelsAvx512<DotAvx512> {
  using Strips = StripsAvx512;
  using Square = SquareAvx512;
  static constexpr int32_t kFewKc = 32;

  // One or two rows of a read whole rows of b one after another.
  static int32_t rowsOfBInPlace(int32_t m, int64_t) { return m <= 2 ? 8 : 128; }

  // multiply() for rows of a and b [k, n] in place, from element k0 of the sum on. An unfinished tile has
  // each 32 columns in the order of Interleaved.
  template <class Source>
  static void multiplyRows(const Source& source, int32_t row, int32_t rows, int32_t col, int32_t cols,
                           int32_t k0, int32_t k, bool last, float* tile) {
    using Function = void (*)(const Rows&, float*);
    static constexpr Function kBySize[6][2] = {
        {inPlace<1, 1>, inPlace<1, 2>}, {inPlace<2, 1>, inPlace<2, 2>}, {inPlace<3, 1>, inPlace<3, 2>},
        {inPlace<4, 1>, inPlace<4, 2>}, {inPlace<5, 1>, inPlace<5, 2>}, {inPlace<6, 1>, inPlace<6, 2>}};
    const Rows operands = {source.sourceA(row, k0),
                           source.strideA(),
                           source.sourceB(col, k0),
                           source.strideB(),
                           cols,
                           k,
                           k0 == 0,
                           last,
                           row == 0};
    kBySize[rows - 1][(cols - 1) / 32](operands, tile);
  }

 private:
  struct Rows {
    const BFloat16* a;
    int64_t lda;
    const BFloat16* b;
    int64_t ldb;
    int32_t cols;
    int32_t k;
    bool first, last;
    bool fetch;  // prefetch what follows in memory
  };

  // The number of rows by which b is prefetched ahead of its use.
  static constexpr int32_t kRowsAhead = 64;

  // Two elements of the sum, or the last one of an odd length.
  template <int kRows, int kHalves, bool kTwo, bool kFetch>
  __attribute__((always_inline)) static void step(const Rows& of, const BFloat16* a, const BFloat16* b,
                                                  const __mmask32 (&masks)[2],
                                                  __m512 (&sum)[kRows][2 * kHalves]) {
    Interleaved column[kHalves];
    unroll<kHalves>([&](auto h) SLUICE_UNROLLED {
      const BFloat16* const even = b + h.value * 32;
      __m512i odd = _mm512_setzero_si512();
      if constexpr (kTwo) odd = _mm512_maskz_loadu_epi16(masks[h.value], even + of.ldb);
      column[h.value] = interleave(_mm512_maskz_loadu_epi16(masks[h.value], even), odd);
      if constexpr (kFetch) {
        fetchSoon(even + kRowsAhead * of.ldb);
        fetchSoon(even + (kRowsAhead + 1) * of.ldb);
      }
    });
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      int32_t pair = a[i.value * of.lda].bits;
      if constexpr (kTwo) __builtin_memcpy(&pair, a + i.value * of.lda, 4);
      const auto row = (__m512bh)_mm512_set1_epi32(pair);
      unroll<2 * kHalves>([&](auto v) SLUICE_UNROLLED {
        sum[i.value][v.value] =
            _mm512_dpbf16_ps(sum[i.value][v.value], row, (__m512bh)column[v.value / 2].half[v.value % 2]);
      });
    });
  }

  template <int kRows, int kHalves>
  static void inPlace(const Rows& of, float* tile) {
    const __mmask32 masks[2] = {makeMask(of.cols), makeMask(of.cols - 32)};
    if (of.first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    __m512 sum[kRows][2 * kHalves];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<2 * kHalves>([&](auto v) SLUICE_UNROLLED {
        sum[i.value][v.value] = _mm512_loadu_ps(tile + i.value * kNr + v.value * 16);
      });
    });
    const BFloat16 *a = of.a, *b = of.b;
    int32_t left = of.k;
    if (of.fetch)
      for (; left > 1; left -= 2, a += 2, b += 2 * of.ldb)
        step<kRows, kHalves, true, true>(of, a, b, masks, sum);
    for (; left > 1; left -= 2, a += 2, b += 2 * of.ldb)
      step<kRows, kHalves, true, false>(of, a, b, masks, sum);
    if (left > 0) step<kRows, kHalves, false, false>(of, a, b, masks, sum);
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<kHalves>([&](auto h) SLUICE_UNROLLED {
        if (of.last) putInOrder(sum[i.value][2 * h.value], sum[i.value][2 * h.value + 1]);
      });
      unroll<2 * kHalves>([&](auto v) SLUICE_UNROLLED {
        _mm512_storeu_ps(tile + i.value * kNr + v.value * 16, sum[i.value][v.value]);
      });
    });
  }
};

// The unit of codes, by vpdpbusd (shifted_codes.h).
struct DotCodesAvx512 {
  using Element = int8_t;
  using Sum = int32_t;
  typedef int32_t Vector __attribute__((vector_size(64)));
  static constexpr int32_t kKc = 1024;
  static constexpr int32_t kAStride = kKc + 64;  // room for sums of the row; no power of two
  static constexpr int32_t kKUnit = 4;
  static constexpr bool kShiftsCodes = true;
  static constexpr int32_t kFetchWords = 8;

  static Vector start(const Element* a, int32_t words, Vector before) {
    return before - excessOfRow<DotCodesAvx512>(a, words);
  }
  static Vector add(Vector sum, __m512i column, __m512i row) {
    return (Vector)_mm512_dpbusd_epi32((__m512i)sum, column, row);
  }
};

using UnitAvx512Codes = PanelsAvx512<DotCodesAvx512>;

}  // namespace
}  // namespace sluice::ops
