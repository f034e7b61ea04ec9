// The AVX2 unit, by fused multiply-adds in fp32. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/code_panels_avx2.h"
#include "ops/cpu/columns_avx2.h"
#include "ops/cpu/few_codes_avx2.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/panels_avx2.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct DotAvx2 {
  using Element = float;
  using PanelElement = BFloat16;
  using Sum = float;
  using Vector = __m256;
  using Column = __m256;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 1;
  static constexpr bool kInterleavesA = true;

  // From a row of a panel as PackAvx2 makes it.
  template <int kVectors>
  SLUICE_UNROLLED static void loadColumns(const BFloat16* b, Column (&column)[kVectors]) {
    const __m256i pairs = pairsAt(b);
    column[0] = lowerOfPairs(pairs);
    if constexpr (kVectors > 1) column[1] = upperOfPairs(pairs);
    if constexpr (kVectors > 2) column[2] = widened(eightAt(b + 16));
  }
  // From a row of a widened panel.
  template <int kVectors>
  SLUICE_UNROLLED static void loadColumns(const float* b, Column (&column)[kVectors]) {
    unroll<kVectors>([&](auto v) SLUICE_UNROLLED { column[v.value] = _mm256_loadu_ps(b + v.value * 8); });
  }
  SLUICE_UNROLLED static Vector broadcast(const float* a) { return _mm256_broadcast_ss(a); }
  SLUICE_UNROLLED static void add(Vector& sum, Column column, Vector row) { multiplyAdd(sum, row, column); }
};

template <int32_t kRows, int32_t kVectors, int32_t kWordsPerFetch>
struct WideningAvx2 : PanelsAvx2<DotAvx2, kRows, kVectors, kWordsPerFetch> {
  // Where more groups use a panel, widening it takes less time than it saves.
  static constexpr int32_t kGroupsToWiden = 8;

  static void widen(const BFloat16* panel, int32_t k, float* to) {
    constexpr int32_t kNr = 8 * kVectors;
    for (int32_t r = 0; r < k; ++r, panel += kNr, to += kNr) {
      __m256 column[kVectors];
      DotAvx2::loadColumns(panel, column);
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED { _mm256_storeu_ps(to + v.value * 8, column[v.value]); });
    }
  }
};

// The unit of products of many rows: a step of 4 rows and 3 vectors takes 19 instructions, of 6 rows and 2
// vectors 20.
struct UnitAvx2 : WideningAvx2<4, 3, 32> {
  static constexpr int32_t kFewKc = 64;
};

// The unit of few rows, and of gradients, whose rows of a tile are whole cache lines.
struct NarrowUnitAvx2 : WideningAvx2<6, 2, 64> {
  using Square = SquareAvx2;
  template <class B>
  using FewCodes = FewCodesAvx2<NarrowUnitAvx2, B>;
  template <class B>
  using CodePanels = CodePanelsAvx2<B>;
  static constexpr int32_t kFewKc = 64;

  // Rows that begin a multiple of 4 KiB apart share a set of the first cache level, which has room for 8. One
  // or two rows of a wait for b, which the processor reads faster if fewer of its rows take turns.
  static int32_t rowsOfBInPlace(int32_t m, int64_t ldb) {
    if (ldb % 2048 == 0) return m <= 10 ? 8 : 0;
    return m <= 2 ? 16 : 64;
  }

  // multiply() for rows of a and b [k, n] in place, from element k0 of the sum on; both are widened in
  // registers.
  template <class Source>
  static void multiplyRows(const Source& source, int32_t row, int32_t rows, int32_t col, int32_t cols,
                           int32_t k0, int32_t k, bool last, float* tile) {
    (void)last;
    const Rows operands = {source.sourceA(row, k0),
                           source.strideA(),
                           source.sourceB(col, k0),
                           source.strideB(),
                           cols,
                           k,
                           k0 == 0,
                           row == 0};
    k > 16 ? multiplyAhead<64>(operands, rows, tile) : multiplyAhead<16>(operands, rows, tile);
  }

 private:
  struct Rows {
    const BFloat16* a;
    int64_t lda;
    const BFloat16* b;
    int64_t ldb;
    int32_t cols;
    int32_t k;
    bool first;
    bool fetch;  // prefetch what follows in memory
  };

  // One element of the sum.
  template <int kRows>
  __attribute__((always_inline)) static void step(const BFloat16* a, int64_t lda, const BFloat16* b,
                                                  __m256 (&sum)[kRows][2]) {
    const __m256 column[2] = {widened(eightAt(b)), widened(eightAt(b + 8))};
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const __m256 row = lowerOfPairs(_mm256_set1_epi16(static_cast<int16_t>(a[i.value * lda].bits)));
      sum[i.value][0] = _mm256_fmadd_ps(row, column[0], sum[i.value][0]);
      sum[i.value][1] = _mm256_fmadd_ps(row, column[1], sum[i.value][1]);
    });
  }

  // The row of b in place; for a partial panel, its columns and zeros.
  template <bool kWhole>
  __attribute__((always_inline)) static const BFloat16* rowOf(const Rows& of, const BFloat16* b,
                                                              BFloat16 (&edge)[kNr]) {
    if constexpr (kWhole) return b;
    __builtin_memcpy(edge, b, static_cast<size_t>(of.cols) * 2);
    return edge;
  }

  // Prefetches b kAhead rows ahead of its use: in the next block of rows, or the one after it.
  template <int kAhead>
  static void multiplyAhead(const Rows& of, int32_t rows, float* tile) {
    using Function = void (*)(const Rows&, float*);
    static constexpr Function kByRows[6][2] = {{inPlace<1, kAhead, false>, inPlace<1, kAhead, true>},
                                               {inPlace<2, kAhead, false>, inPlace<2, kAhead, true>},
                                               {inPlace<3, kAhead, false>, inPlace<3, kAhead, true>},
                                               {inPlace<4, kAhead, false>, inPlace<4, kAhead, true>},
                                               {inPlace<5, kAhead, false>, inPlace<5, kAhead, true>},
                                               {inPlace<6, kAhead, false>, inPlace<6, kAhead, true>}};
    kByRows[rows - 1][of.cols == kNr](of, tile);
  }

  template <int kRows, int kAhead, bool kWhole>
  static void inPlace(const Rows& of, float* tile) {
    if (of.first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    __m256 sum[kRows][2];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      sum[i.value][0] = _mm256_loadu_ps(tile + i.value * kNr);
      sum[i.value][1] = _mm256_loadu_ps(tile + i.value * kNr + 8);
    });
    BFloat16 edge[kNr] = {};
    const BFloat16 *a = of.a, *b = of.b;
    int32_t left = of.k;
    for (; left > 1; left -= 2, a += 2, b += 2 * of.ldb) {
      if (of.fetch) {
        fetchSoon(b + kAhead * of.ldb);
        fetchSoon(b + (kAhead + 1) * of.ldb);
      }
      step(a, of.lda, rowOf<kWhole>(of, b, edge), sum);
      step(a + 1, of.lda, rowOf<kWhole>(of, b + of.ldb, edge), sum);
    }
    if (left > 0) step(a, of.lda, rowOf<kWhole>(of, b, edge), sum);
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      _mm256_storeu_ps(tile + i.value * kNr, sum[i.value][0]);
      _mm256_storeu_ps(tile + i.value * kNr + 8, sum[i.value][1]);
    });
  }
};

}  // namespace
}  // namespace sluice::ops
