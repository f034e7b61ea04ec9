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
// Sums run in the order of blocked_product.h, so that the bits are those of packed numbers. What is rare is
// decoded to numbers in memory first: scales that leave no room for rounding by products, the least power of
// two, and codes of 4 bits from an odd element on. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/decode.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/numbers_avx2.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/unroll.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// In each half of the vectors: x[j], byte i = x[i], byte j.
SLUICE_UNROLLED inline void transposeBytes(__m256i (&x)[16]) {
  __m256i y[16];
  // each of four times, pairs of rows that are 8 apart are interleaved
  const auto interleave = [](const __m256i(&from)[16], __m256i(&to)[16]) SLUICE_UNROLLED {
    unroll<8>([&](auto i) SLUICE_UNROLLED {
      to[2 * i.value] = _mm256_unpacklo_epi8(from[i.value], from[i.value + 8]);
      to[2 * i.value + 1] = _mm256_unpackhi_epi8(from[i.value], from[i.value + 8]);
    });
  };
  interleave(x, y);
  interleave(y, x);
  interleave(x, y);
  interleave(y, x);
}

// The Source is a DecodedSource of Unit, whose tiles have kColumns columns.
template <class Unit, class B>
class FewCodesAvx2 {
 public:
  static constexpr int32_t kMaxRows = 8;

  // c = a * b for m rows of a and k elements of each sum, neither of them 0.
  template <class Source>
  static void multiply(const Source& source, int32_t m, int32_t n, int32_t k, float* scratch) {
    const FewCodesAvx2 product(source.args, m);
    __builtin_memset(scratch, 0, sizeof(float) * static_cast<size_t>(roundUp(n, kColumns) * m));
    product.args_.transposeB ? product.alongColumns(source, n, k, scratch)
                             : product.alongRows(source, n, k, scratch);
  }

 private:
  static constexpr int32_t kColumns = 16, kTurn = 8, kRowsOfGroup = 4;
  static_assert(Unit::kNr == kColumns && kMaxRows + 2 <= kFewRows);  // see alongRows()
  static constexpr int32_t kPerByte = static_cast<int32_t>(kPerElement<B>);
  static constexpr bool kHasHalves = kPerByte == 2;
  static constexpr int32_t kLine = kLineBytes * kPerByte;      // codes of a cache line
  static constexpr int32_t kPanelBytes = kColumns / kPerByte;  // of a row

  // The scales of a panel, and what is added to its numbers.
  struct Scales {
    alignas(32) float by[kColumns], plus[kColumns];
  };
  // `count` panels side by side: in each of some rows, `stride` bytes apart, kPanelBytes bytes of each; or
  // one of 16 bytes of each pair of elements.
  struct Panels {
    const void* from;
    int64_t stride;
    const Scales* scales;
    int32_t count;
  };
  // Elements of the sum from `first` on that share the scales of `block`.
  struct Stretch {
    int32_t first, end, block;
  };
  struct Room {
    alignas(32) float rows[kMaxRows][kLine];  // of a
    alignas(32) uint8_t codes[kLineBytes * kColumns];
    alignas(32) BFloat16 numbers[kLine * kColumns];
  };

  FewCodesAvx2(const GmmArgs& args, int32_t m) : args_(args), scales_(args.scaleB), m_(m) {
    const int32_t groups = (m - 1) / kRowsOfGroup + 1;
    rowsOfGroup_ = (m - 1) / groups + 1;
  }

  // The scales of all columns lie after the tiles, in room for those of more rows. If a byte has the codes of
  // two columns, tiles and scales have the columns of even number first.
  template <class Source>
  void alongRows(const Source& source, int32_t n, int32_t k, float* tiles) const {
    Room room;
    auto* const scales = reinterpret_cast<Scales*>(tiles + roundUp(n, kColumns) * m_);
    for (Stretch stretch = stretchFrom(0, k);; stretch = stretchFrom(stretch.end, k)) {
      bool isCommon = true;
      for (int32_t col = 0; col < n; col += kColumns)
        isCommon &= findScales(stretch.block, col, smaller(kColumns, n - col), scales[col / kColumns]);
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
      for (int32_t i = 0; kHasHalves && i < m_; ++i) interleave(tiles + i * kColumns);
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
    from += panels * kPanelBytes;
    for (int32_t r = 0; r < length; ++r) {
      __builtin_memset(room.codes + r * kPanelBytes, 0, kPanelBytes);
      __builtin_memcpy(room.codes + r * kPanelBytes, from + r * ld,
                       static_cast<size_t>((rest - 1) / kPerByte + 1));
    }
    addRows<false>({room.codes, kPanelBytes, scales + panels, 1}, length, room.rows, 0,
                   tile + panels * m_ * kColumns);
  }

  template <class Source>
  void alongColumns(const Source& source, int32_t n, int32_t k, float* tile) const {
    constexpr int32_t kAhead = 4 * kLine;
    Room room;
    Scales scales;
    for (int32_t col = 0; col < n; col += kColumns, tile += m_ * kColumns) {
      const int32_t cols = smaller(kColumns, n - col);
      int32_t known = -1;  // the block of `scales`
      bool isCommon = false;
      for (int32_t k0 = 0; k0 < k; k0 += kLine) {
        const int32_t length = smaller(kLine, k - k0), later = k0 + kAhead;
        fetchRows<kColumns>(later < k ? source.sourceB(col, later)
                                      : source.sourceB(col + kColumns, later - k));
        widenRows(source, k0, length, room);
        bringColumns(source.sourceB(col, k0), length, cols, room.codes);
        for (int32_t r = 0; r < length;) {
          const Stretch stretch = stretchFrom(k0 + r, k0 + length);
          if (stretch.block != known) isCommon = findScales(stretch.block, col, cols, scales);
          known = stretch.block;
          if (isCommon && r % kPerByte == 0)
            addRows<kHasHalves>({room.codes + r / kPerByte * kColumns, kColumns, &scales, 1},
                                stretch.end - stretch.first, room.rows, r, tile);
          else
            addNumbers(source, stretch.first, stretch.end - stretch.first, col, cols, room, tile, r);
          r = stretch.end - k0;
        }
      }
      source.store(0, m_, col, cols, tile);
    }
  }

  // The stretch from k0 on, up to `end`.
  Stretch stretchFrom(int32_t k0, int32_t end) const {
    const int32_t along = args_.transposeB ? scales_.columns : scales_.rows;
    const int32_t before = args_.transposeB ? scales_.firstColumn : scales_.firstRow;
    const int32_t block = (before + k0) / along;
    return {k0, smaller(along - (before + k0 - block * along), end - k0) + k0, block};
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

  // Where the scales of 16 columns are, of which `cols` exist: that of a column `first` + j of the matrix, of
  // which `across` share one.
  struct ScalesAt {
    int64_t from, step;
    int32_t cols, first, across;

    // The value of each column, those beyond `cols` zero; in `room`, unless they lie side by side.
    template <class T>
    SLUICE_UNROLLED const T* find(const T* plane, T (&room)[kColumns]) const {
      if (across == 1 && step == 1 && cols == kColumns) return plane + from + first;
      if (across == 1 && cols == kColumns) {
        const T* at = plane + from + first * step;
        for (int32_t j = 0; j < kColumns; ++j, at += step) room[j] = *at;
        return room;
      }
      for (int32_t j = 0; j < kColumns; ++j) room[j] = T{};
      for (int32_t j = 0; j < cols; ++j) room[j] = plane[from + (first + j) / across * step];
      return room;
    }
  };

  // The scales of the panel in a block of the sum. Returns whether decodeSixteen() can use them.
  SLUICE_NOT_INLINED bool findScales(int32_t block, int32_t col, int32_t cols, Scales& scales) const {
    const bool turned = args_.transposeB;
    const ScalesAt at = {turned ? block : block * scales_.ld, turned ? scales_.ld : 1, cols,
                         (turned ? scales_.firstRow : scales_.firstColumn) + col,
                         turned ? scales_.rows : scales_.columns};
    if constexpr (!kHasHalves) {
      const bool isCommon = copyScales(scales_.data, at, scales.by);
      if constexpr (__is_same(B, uint8_t))
        for (float& by : scales.by) by *= kScaleOfE4m3;
      return isCommon;
    }
    const bool isCommon =
        scales_.powers != nullptr ? copyPowers(at, scales.by) : copyScales(scales_.data, at, scales.by);
    if (!turned) evenFirst(scales.by);
    if (scales_.zero == nullptr) {
      for (int32_t j = 0; j < kColumns; j += 8)
        _mm256_store_ps(scales.plus + j,
                        _mm256_mul_ps(_mm256_set1_ps(-kHalf), _mm256_load_ps(scales.by + j)));
      return isCommon;
    }
    const bool areCommon = copyScales(scales_.zero, at, scales.plus);
    if (!turned) evenFirst(scales.plus);
    return isCommon && areCommon;
  }

  SLUICE_UNROLLED static bool copyScales(const float* plane, const ScalesAt& at, float* to) {
    float room[kColumns];
    const float* const from = at.find(plane, room);
    const auto copied = [&](int32_t j) SLUICE_UNROLLED {
      const __m256 x = _mm256_loadu_ps(from + j), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
      _mm256_store_ps(to + j, x);
      return _mm256_cmp_ps(size, _mm256_set1_ps(kMaxScale), _CMP_LT_OQ);
    };
    return _mm256_movemask_ps(_mm256_and_ps(copied(0), copied(8))) == 0xff;
  }

  SLUICE_UNROLLED bool copyPowers(const ScalesAt& at, float* to) const {
    uint8_t room[kColumns];
    const __m128i powers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at.find(scales_.powers, room)));
    const __m128i areLeast = _mm_cmpeq_epi8(powers, _mm_setzero_si128());
    for (int32_t j = 0; j < kColumns; j += 8) {
      const __m256i power = _mm256_cvtepu8_epi32(j == 0 ? powers : _mm_srli_si128(powers, 8));
      const __m256i isNan = _mm256_cmpeq_epi32(power, _mm256_set1_epi32(0xff));
      _mm256_store_si256(
          reinterpret_cast<__m256i*>(to + j),
          _mm256_blendv_epi8(_mm256_slli_epi32(power, 23), _mm256_set1_epi32(0x7fc00000), isNan));
    }
    return (_mm_movemask_epi8(areLeast) & ((1 << at.cols) - 1)) == 0;
  }

  // x: 16 columns.
  static void evenFirst(float* x) {
    const __m256 first = _mm256_loadu_ps(x), second = _mm256_loadu_ps(x + 8);
    const auto inOrder = [](__m256 y) SLUICE_UNROLLED {
      return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(y), 0xd8));
    };
    _mm256_storeu_ps(x, inOrder(_mm256_shuffle_ps(first, second, 0x88)));
    _mm256_storeu_ps(x + 8, inOrder(_mm256_shuffle_ps(first, second, 0xdd)));
  }
  static void interleave(float* x) {
    const __m256 even = _mm256_loadu_ps(x), odd = _mm256_loadu_ps(x + 8);
    const __m256 some = _mm256_unpacklo_ps(even, odd), others = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(x, _mm256_permute2f128_ps(some, others, 0x20));
    _mm256_storeu_ps(x + 8, _mm256_permute2f128_ps(some, others, 0x31));
  }

  // Columns of a transposed b, 32 bytes of each at a time.
  void bringColumns(const B* from, int32_t length, int32_t cols, uint8_t* room) const {
    const int32_t bytes = (length - 1) / kPerByte + 1;
    const int64_t ld = args_.b.ld / kPerByte;
    for (int32_t r = 0; r < bytes; r += 32, room += 32 * kColumns) {
      if (cols == kColumns && bytes - r >= 32) {
        bringWhole(from + r, ld, room);
        continue;
      }
      B edge[kColumns * 32] = {};
      for (int32_t j = 0; j < cols; ++j)
        __builtin_memcpy(edge + j * 32, from + j * ld + r, static_cast<size_t>(smaller(32, bytes - r)));
      bringWhole(edge, 32, room);
    }
  }
  SLUICE_NOT_INLINED static void bringWhole(const B* from, int64_t ld, uint8_t* room) {
    __m256i x[kColumns];
    unroll<kColumns>([&](auto j) SLUICE_UNROLLED {
      x[j.value] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      from += ld;
    });
    transposeBytes(x);
    auto* const to = reinterpret_cast<__m128i*>(room);
    unroll<kColumns>([&](auto j) SLUICE_UNROLLED {
      _mm_store_si128(to + j.value, _mm256_castsi256_si128(x[j.value]));
      _mm_store_si128(to + kColumns + j.value, _mm256_extracti128_si256(x[j.value], 1));
    });
  }

  // The same by numbers that are decoded to memory.
  template <class Source>
  SLUICE_NOT_INLINED void addNumbers(const Source& source, int32_t k0, int32_t length, int32_t col,
                                     int32_t cols, Room& room, float* tile, int32_t at = 0) const {
    decodeTo(source, k0, length, col, cols, room.numbers);
    for (int32_t r = 0; r < length; ++r) {
      float x[kColumns];
      for (int32_t j = 0; j < kColumns; ++j) x[j] = widenBf16(room.numbers[r * kColumns + j].bits);
      if (kHasHalves && !args_.transposeB) evenFirst(x);
      for (int32_t i = 0; i < m_; ++i)
        for (int32_t j = 0; j < kColumns; j += 8) {
          float* const sum = tile + i * kColumns + j;
          _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_broadcast_ss(room.rows[i] + at + r),
                                                _mm256_loadu_ps(x + j), _mm256_loadu_ps(sum)));
        }
    }
  }
  // numbers[element][column] of a panel.
  template <class Source>
  void decodeTo(const Source& source, int32_t k0, int32_t length, int32_t col, int32_t cols,
                BFloat16* numbers) const {
    if (!args_.transposeB) return source.decodeRows(k0, length, col, cols, numbers, kColumns);
    const int32_t odd = k0 % 2;
    BFloat16 column[kLine + 1];
    for (int32_t j = 0; j < cols; ++j) {
      source.decodeColumns(col + j, 1, k0 - odd, length + odd, column, 0);
      for (int32_t r = 0; r < length; ++r) numbers[r * kColumns + j] = column[r + odd];
    }
  }

  // Adds the products of all rows of a, from element `at` of `rows` on. kPairs: codes have two elements per
  // byte.
  template <bool kPairs>
  void addRows(const Panels& panels, int32_t length, const float (&rows)[kMaxRows][kLine], int32_t at,
               float* tile) const {
    const auto by = [&](auto kind) {
      using Function = void (*)(const Panels&, const float*, int32_t, int64_t, float*);
      constexpr auto kKind = static_cast<CodeKind>(decltype(kind)::value);
      static constexpr Function kByRows[kRowsOfGroup] = {sized<1, kKind, kPairs>, sized<2, kKind, kPairs>,
                                                         sized<3, kKind, kPairs>, sized<4, kKind, kPairs>};
      for (int32_t row = 0; row < m_; row += rowsOfGroup_)
        kByRows[smaller(rowsOfGroup_, m_ - row) - 1](panels, rows[row] + at, length, m_ * kColumns,
                                                     tile + row * kColumns);
    };
    if constexpr (!kHasHalves)
      by(Index<static_cast<int>(__is_same(B, int8_t) ? CodeKind::kWhole : CodeKind::kE4m3)>());
    else if (scales_.powers != nullptr)
      by(Index<static_cast<int>(CodeKind::kE2m1)>());
    else if (scales_.zero != nullptr)
      by(Index<static_cast<int>(CodeKind::kNibblesWithZeros)>());
    else
      by(Index<static_cast<int>(CodeKind::kNibbles)>());
  }

  // `rows`: of a, kLine floats apart; `nextTile`: from the tile of a panel to the next one's.
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

  const GmmArgs& args_;
  const BlockScales& scales_;
  const int32_t m_;
  int32_t rowsOfGroup_;
};

}  // namespace
}  // namespace sluice::ops
