// Products of few rows of bf16 with codes, AVX2 form. Codes are decoded in registers: numbers are not stored.
//
// A b that is [k, n] is read as it lies, some rows at a time, because memory does best with long runs:
//
//   for stretches of the sum along which each column has one scale
//     for kTurn rows of the stretch
//       for cache lines of these rows
//         for groups of rows: tiles += a group * the numbers of the panels of 16 columns in these lines
//
// A transposed b is read by panels, which is the order of its memory:
//
//   for panels of 16 columns
//     for cache lines of the columns
//       bring the codes into the order [element][column], or [pair of elements][column] if a byte has two
//       for stretches: for groups of rows: tile += a group * the numbers of the panel in this part
//
// Sums run in the order of blocked_product.h, so that packed numbers give the same bits. Internal linkage:
// see there.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/code_panels_avx2.h"
#include "ops/cpu/few_rows.h"
#include "ops/cpu/numbers_avx2.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/unroll.h"
#include "ops/cpu/way.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// The Source is a DecodedSource of Unit, whose tiles have kColumns columns.
template <class Unit, class B>
class FewCodesAvx2 : CodePanelsAvx2<B> {
 public:
  // c = a * b for m rows of a and k elements of each sum, neither of them 0.
  template <class Source>
  static void multiply(const Source& source, int32_t m, int32_t n, int32_t k, float* scratch) {
    const FewCodesAvx2 product(source.args, m);
    __builtin_memset(scratch, 0, sizeof(float) * static_cast<size_t>(roundUp(n, kColumns) * m));
    product.args_.transposeB ? product.alongColumns(source, n, k, scratch)
                             : product.alongRows(source, n, k, scratch);
  }

 private:
  using Base = CodePanelsAvx2<B>;
  using Base::args_;
  using Base::kColumns;
  using Base::kHasHalves;
  using Base::kLine;
  using Base::kPanelBytes;
  using Base::kPerByte;
  using typename Base::Scales;
  using typename Base::Stretch;
  static constexpr int32_t kTurn = 8, kRowsOfGroup = 4;
  static_assert(Unit::kNr == kColumns && kFewCodesRows + 2 <= kFewRows);  // see alongRows()

  // `count` panels lie side by side: each of some rows, which are `stride` bytes apart, has kPanelBytes bytes
  // of each panel. Or there is one panel, which has 16 bytes for each pair of elements.
  struct Panels {
    const void* from;
    int64_t stride;
    const Scales* scales;
    int32_t count;
  };
  struct Room {
    alignas(32) float rows[kFewCodesRows][kLine];  // of a
    alignas(32) uint8_t codes[kLineBytes * kColumns];
  };

  FewCodesAvx2(const GmmArgs& args, int32_t m) : Base(args), m_(m) {
    const int32_t groups = (m - 1) / kRowsOfGroup + 1;
    rowsOfGroup_ = (m - 1) / groups + 1;
  }

  // The scales of all columns lie after the tiles, in memory that tiles of more rows would use. If a byte has
  // the codes of two columns, tiles have the columns of even number first, as Scales have.
  template <class Source>
  void alongRows(const Source& source, int32_t n, int32_t k, float* tiles) const {
    Room room;
    auto* const scales = reinterpret_cast<Scales*>(tiles + roundUp(n, kColumns) * m_);
    for (Stretch stretch = this->stretchFrom(0, k);; stretch = this->stretchFrom(stretch.end, k)) {
      bool isCommon = true;
      for (int32_t col = 0; col < n; col += kColumns)
        isCommon &= this->findScales(stretch.block, col, smaller(kColumns, n - col), scales[col / kColumns]);
      for (int32_t r = stretch.first; r < stretch.end; r += kTurn) {
        const int32_t length = smaller(kTurn, stretch.end - r);
        widenRows(source, r, length, room);
        for (int32_t col = 0; col < n; col += kLine) {
          const int32_t cols = smaller(kLine, n - col);
          const B* const from = source.sourceB(col, r);
          fetchRows<kTurn>(from + kTurn * args_.b.ld / kPerByte);
          if (isCommon)
            addPanels(from, length, cols, scales + col / kColumns, room, tiles + int64_t{col} * m_);
          else
            for (int32_t j = 0; j < cols; j += kColumns)
              addNumbers(source, r, length, col + j, smaller(kColumns, cols - j), room,
                         tiles + int64_t{col + j} * m_);
        }
      }
      if (stretch.end == k) break;
    }
    for (int32_t col = 0; col < n; col += kColumns, tiles += m_ * kColumns) {
      if constexpr (kHasHalves) interleaveTile(tiles);
      source.store(0, m_, col, smaller(kColumns, n - col), tiles);
    }
  }

  template <int32_t kRows>
  void fetchRows(const B* from) const {
    for (int32_t i = 0; i < kRows; ++i, from += args_.b.ld / kPerByte) fetchSoon(from);
  }

  // The last panel may have fewer columns: its codes are copied.
  void addPanels(const B* from, int32_t length, int32_t cols, const Scales* scales, Room& room,
                 float* tile) const {
    const int32_t panels = cols / kColumns, rest = cols % kColumns;
    const int64_t ld = args_.b.ld / kPerByte;
    if (panels > 0) addRows<false>({from, ld, scales, panels}, length, room.rows, 0, tile);
    if (rest == 0) return;
    this->bringRows(from + panels * kPanelBytes, length, rest, room.codes);
    addRows<false>({room.codes, kPanelBytes, scales + panels, 1}, length, room.rows, 0,
                   tile + panels * m_ * kColumns);
  }

  template <class Source>
  void alongColumns(const Source& source, int32_t n, int32_t k, float* tile) const {
    constexpr int32_t kAhead = 4 * kLine;
    Room room;
    for (int32_t col = 0; col < n; col += kColumns, tile += m_ * kColumns) {
      const int32_t cols = smaller(kColumns, n - col);
      typename Base::Found found;
      for (int32_t k0 = 0; k0 < k; k0 += kLine) {
        const int32_t length = smaller(kLine, k - k0), later = k0 + kAhead;
        fetchRows<kColumns>(later < k ? source.sourceB(col, later)
                                      : source.sourceB(col + kColumns, later - k));
        widenRows(source, k0, length, room);
        this->bringColumns(source.sourceB(col, k0), length, cols, room.codes);
        this->eachStretch(
            k0, length, col, cols, found,
            [&](int32_t r, int32_t count) {
              addRows<kHasHalves>({room.codes + r / kPerByte * kColumns, kColumns, &found.scales, 1}, count,
                                  room.rows, r, tile);
            },
            [&](int32_t r, int32_t count) { addNumbers(source, k0 + r, count, col, cols, room, tile, r); });
      }
      source.store(0, m_, col, cols, tile);
    }
  }

  template <class Source>
  void widenRows(const Source& source, int32_t k0, int32_t length, Room& room) const {
    for (int32_t i = 0; i < m_; ++i) {
      const BFloat16* const from = source.sourceA(i, k0);
      int32_t r = 0;
      for (; r + 8 <= length; r += 8) _mm256_store_ps(room.rows[i] + r, widened(eightAt(from + r)));
      for (; r < length; ++r) room.rows[i][r] = widenBf16(from[r].bits);
    }
  }

  void interleaveTile(float* tile) const {
    for (int32_t i = 0; i < m_; ++i, tile += kColumns) {
      __m256 row[2] = {_mm256_loadu_ps(tile), _mm256_loadu_ps(tile + 8)};
      Base::interleave(row);
      _mm256_storeu_ps(tile, row[0]);
      _mm256_storeu_ps(tile + 8, row[1]);
    }
  }

  // Adds the products of all rows of a with numbers that are decoded to memory.
  template <class Source>
  SLUICE_NOT_INLINED void addNumbers(const Source& source, int32_t k0, int32_t length, int32_t col,
                                     int32_t cols, const Room& room, float* tile, int32_t at = 0) const {
    float numbers[kLine * kColumns];
    this->decodeRare(source, k0, length, col, cols, numbers);
    for (int32_t r = 0; r < length; ++r) {
      float* const x = numbers + r * kColumns;
      if (kHasHalves && !args_.transposeB) this->evenFirst(x);
      for (int32_t i = 0; i < m_; ++i)
        for (int32_t j = 0; j < kColumns; j += 8) {
          float* const sum = tile + i * kColumns + j;
          _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_broadcast_ss(room.rows[i] + at + r),
                                                _mm256_loadu_ps(x + j), _mm256_loadu_ps(sum)));
        }
    }
  }

  // Adds the products of all rows of a, from element `at` of `rows` on. kPairs: codes have two elements per
  // byte.
  template <bool kPairs>
  void addRows(const Panels& panels, int32_t length, const float (&rows)[kFewCodesRows][kLine], int32_t at,
               float* tile) const {
    this->withKind([&](auto kind) {
      using Function = void (*)(const Panels&, const float*, int32_t, int64_t, float*);
      constexpr auto kKind = static_cast<CodeKind>(decltype(kind)::value);
      static constexpr Function kByRows[kRowsOfGroup] = {sized<1, kKind, kPairs>, sized<2, kKind, kPairs>,
                                                         sized<3, kKind, kPairs>, sized<4, kKind, kPairs>};
      for (int32_t row = 0; row < m_; row += rowsOfGroup_)
        kByRows[smaller(rowsOfGroup_, m_ - row) - 1](panels, rows[row] + at, length, m_ * kColumns,
                                                     tile + row * kColumns);
    });
  }

  // `rows` are the rows of `a`, kLine floats apart; `nextTile` leads from the tile of a panel to the next
  // one.
  template <int kRows, CodeKind kKind, bool kPairs>
  SLUICE_NOT_INLINED static void sized(const Panels& of, const float* rows, int32_t length, int64_t nextTile,
                                       float* tile) {
    const Scales* scales = of.scales;
    const int64_t stride = of.stride;
    const char* panel = static_cast<const char*>(of.from);
    for (const Scales* const end = scales + of.count; scales != end;
         ++scales, panel += kPanelBytes, tile += nextTile) {
      __m256 sum[kRows][2], by[2], plus[2];
      unroll<2>([&](auto v) SLUICE_UNROLLED {
        by[v.value] = _mm256_load_ps(scales->by + 8 * v.value);
        if constexpr (isOfFourBits(kKind)) plus[v.value] = _mm256_load_ps(scales->plus + 8 * v.value);
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          sum[i.value][v.value] = _mm256_loadu_ps(tile + i.value * kColumns + 8 * v.value);
        });
      });
      // sum[., v] += element r of the rows * x
      const auto add = [&](int32_t r, auto v, __m256 x) SLUICE_UNROLLED {
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          sum[i.value][v.value] =
              _mm256_fmadd_ps(_mm256_broadcast_ss(rows + i.value * kLine + r), x, sum[i.value][v.value]);
        });
      };
      const char* codes = panel;
      const auto step = [&](int32_t r, bool isPair) SLUICE_UNROLLED {
        __m256 x[2];
        if constexpr (kPairs) {
          unroll<2>([&](auto v) SLUICE_UNROLLED {
            decodeSixteen<kKind>(codes + 8 * v.value, {by[v.value], by[v.value]},
                                 {plus[v.value], plus[v.value]}, x);
            add(r, v, x[0]);
            if (isPair) add(r + 1, v, x[1]);
          });
        } else {
          decodeSixteen<kKind>(codes, by, plus, x);
          add(r, Index<0>(), x[0]);
          add(r, Index<1>(), x[1]);
        }
        codes += stride;
      };
      constexpr int32_t kPerStep = kPairs ? 2 : 1;
      int32_t r = 0;
      for (; r + kTurn <= length; r += kTurn)
        unroll<kTurn / kPerStep>([&](auto s) SLUICE_UNROLLED { step(r + s.value * kPerStep, true); });
      for (; r < length; r += kPerStep) step(r, r + 1 < length);
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        unroll<2>([&](auto v) SLUICE_UNROLLED {
          _mm256_storeu_ps(tile + i.value * kColumns + 8 * v.value, sum[i.value][v.value]);
        });
      });
    }
  }

  const int32_t m_;
  int32_t rowsOfGroup_;
};

}  // namespace
}  // namespace sluice::ops
