// Products of few rows of bf16 with codes, AVX2 form. Codes are decoded in registers: numbers are not stored.
//
//   for stretches of the sum along which each column has one scale
//     for panels of 16 columns
//       bring the codes into the order [element][column], a byte each, if they do not lie so
//       for groups of rows: tile += a group * the numbers of the panel
//
// The panels of a transposed b are the outer loop: so codes are read in the order of memory. Sums run in the
// order of blocked_product.h, so that the bits are those of packed numbers.
//
// What is rare, powers of two whose halves are subnormal, and codes of 4 bits from an odd element on, is
// decoded to numbers first. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/decode.h"
#include "ops/cpu/decode_avx2.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/unroll.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// x[j], byte i = x[i], byte j.
SLUICE_NOT_INLINED inline void transposeBytes(__m128i (&x)[16]) {
  __m128i y[16];
  // each of four times, pairs of rows that are 8 apart are interleaved
  const auto interleave = [](const __m128i(&from)[16], __m128i(&to)[16]) SLUICE_UNROLLED {
    unroll<8>([&](auto i) SLUICE_UNROLLED {
      to[2 * i.value] = _mm_unpacklo_epi8(from[i.value], from[i.value + 8]);
      to[2 * i.value + 1] = _mm_unpackhi_epi8(from[i.value], from[i.value + 8]);
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
  static constexpr int32_t kMostRows = 8;

  template <class Source>
  static void multiply(const Source& source, int32_t m, int32_t n, int32_t k, float* tiles) {
    const FewCodesAvx2 product(source.args, m);
    product.args_.transposeB ? product.alongColumns(source, n, k, tiles)
                             : product.alongRows(source, n, k, tiles);
  }

 private:
  static constexpr int32_t kColumns = 16, kLength = 64, kRowsOfGroup = 4;
  static_assert(Unit::kNr == kColumns);
  static constexpr bool kHasHalves = __is_same(B, Nibbles);
  // Bytes of a panel: whole numbers, twice the numbers of E2M1, or codes of E4M3.
  using Code = std::conditional_t<kHasHalves, int8_t, B>;

  // Elements from k0 on of 16 columns.
  struct Panel {
    const Code* codes = nullptr;  // of an element
    int64_t stride = 0;
    alignas(32) float scale[kColumns] = {}, zero[kColumns] = {};
  };
  struct Room {
    alignas(32) Code codes[kLength * kColumns];
    alignas(32) BFloat16 numbers[kLength * kColumns];
  };

  FewCodesAvx2(const GmmArgs& args, int32_t m) : args_(args), scales_(args.scaleB), m_(m) {
    const int32_t groups = (m - 1) / kRowsOfGroup + 1;
    rowsOfGroup_ = (m - 1) / groups + 1;
  }

  // What codes of 4 bits stand for, in each half.
  __m256i bytesOfCodes() const {
    if (scales_.powers != nullptr)
      return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1)));
    const __m256i codes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    return _mm256_sub_epi8(codes, _mm256_set1_epi8(scales_.zero == nullptr ? kHalf : 0));
  }

  template <class Source>
  void alongRows(const Source& source, int32_t n, int32_t k, float* tiles) const {
    Room room;
    int32_t k0 = 0;
    do {
      const int32_t length = stretchFrom(k0, k), next = k0 + length;
      Lines ahead = linesOf(source.sourceB(0, next), args_.b.ld, smaller(kLength, k - next), n);
      ahead.spreadOver((n - 1) / kColumns + 1);
      for (int32_t col = 0; col < n; col += kColumns) {
        ahead.fetch();
        add(source, k0, length, col, smaller(kColumns, n - col), next >= k, tiles + int64_t{col} * m_, room);
      }
      k0 = next;
    } while (k0 < k);
  }

  template <class Source>
  void alongColumns(const Source& source, int32_t n, int32_t k, float* tile) const {
    constexpr int32_t kAhead = 8 * kLength;
    Room room;
    for (int32_t col = 0; col < n; col += kColumns) {
      int32_t k0 = 0;
      do {
        const int32_t length = stretchFrom(k0, k), later = k0 + kAhead;
        for (int32_t j = 0; j < kColumns; ++j)
          fetchSoon(later < k ? source.sourceB(col + j, later)
                              : source.sourceB(col + kColumns + j, later - k));
        add(source, k0, length, col, smaller(kColumns, n - col), k0 + length >= k, tile, room);
        k0 += length;
      } while (k0 < k);
    }
  }

  // How many elements of the sum from k0 on share scales, at most kLength.
  int32_t stretchFrom(int32_t k0, int32_t k) const {
    const int32_t along = args_.transposeB ? scales_.columns : scales_.rows;
    const int32_t first = (args_.transposeB ? scales_.firstColumn : scales_.firstRow) + k0;
    return smaller(smaller(kLength, along - first % along), k - k0);
  }

  // Adds a stretch of a panel to the tiles of all groups of rows, which are stored after the last stretch.
  template <class Source>
  SLUICE_NOT_INLINED void add(const Source& source, int32_t k0, int32_t length, int32_t col, int32_t cols,
                              bool last, float* tile, Room& room) const {
    Panel panel;
    bool isCommon = true;
    if (length > 0) {  // an empty sum has no scales
      isCommon = findScales(k0, col, cols, panel) && (!kHasHalves || !args_.transposeB || k0 % 2 == 0);
      if (isCommon)
        bring(source, k0, length, col, cols, room.codes, panel);
      else
        decodeTo(source, k0, length, col, cols, room.numbers);
    }
    for (int32_t row = 0; row < m_; row += rowsOfGroup_, tile += rowsOfGroup_ * kColumns) {
      const int32_t rows = smaller(rowsOfGroup_, m_ - row);
      if (k0 == 0) __builtin_memset(tile, 0, sizeof(float) * rows * kColumns);
      if (isCommon)
        addRows(rows, source.sourceA(row, k0), source.strideA(), length, panel, tile);
      else
        for (int32_t i = 0; i < rows; ++i)
          addNumbers(source.sourceA(row + i, k0), length, room.numbers, tile + i * kColumns);
      if (last) source.store(row, rows, col, cols, tile);
    }
  }

  // Where the scales of 16 columns are, of which `cols` exist: that of a column `first` + j of the matrix, of
  // which `across` share one.
  struct ScalesAt {
    int64_t from, step;
    int32_t cols, first, across;

    // The value of each column, those beyond `cols` zero; in `room`, unless they lie side by side.
    template <class T>
    const T* find(const T* plane, T (&room)[kColumns]) const {
      if (across == 1 && step == 1 && cols == kColumns) return plane + from + first;
      for (int32_t j = 0; j < kColumns; ++j) room[j] = T{};
      const int32_t block = first / across;
      if (across == 1)
        for (int32_t j = 0; j < cols; ++j) room[j] = plane[from + (first + j) * step];
      else if (block == (first + cols - 1) / across)
        for (int32_t j = 0; j < cols; ++j) room[j] = plane[from + block * step];
      else
        for (int32_t j = 0; j < cols; ++j) room[j] = plane[from + (first + j) / across * step];
      return room;
    }
  };

  // The scales and zeros of the panel. Returns whether all can be multiplied by bytes: else they are powers
  // of E2M1.
  bool findScales(int32_t k0, int32_t col, int32_t cols, Panel& panel) const {
    const bool turned = args_.transposeB;
    const int64_t along = turned ? (scales_.firstColumn + k0) / scales_.columns
                                 : (scales_.firstRow + k0) / scales_.rows * scales_.ld;
    const ScalesAt at = {along, turned ? scales_.ld : 1, cols,
                         (turned ? scales_.firstRow : scales_.firstColumn) + col,
                         turned ? scales_.rows : scales_.columns};
    if (scales_.powers != nullptr) return halfPowers(at, panel.scale);
    copyScales(scales_.data, at, panel.scale);
    if (scales_.zero != nullptr) copyScales(scales_.zero, at, panel.zero);
    return true;
  }

  // A NaN has no bits then that rounding carries into its sign.
  static void copyScales(const float* plane, const ScalesAt& at, float* to) {
    float room[kColumns];
    const float* const from = at.find(plane, room);
    for (int32_t j = 0; j < kColumns; j += 8) {
      const __m256 x = _mm256_loadu_ps(from + j);
      const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(kNan));
      _mm256_store_ps(to + j, _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    }
  }

  bool halfPowers(const ScalesAt& at, float* to) const {
    uint8_t room[kColumns];
    const __m128i powers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at.find(scales_.powers, room)));
    const __m128i areLow = _mm_cmpeq_epi8(_mm_min_epu8(powers, _mm_set1_epi8(1)), powers);
    for (int32_t j = 0; j < kColumns; j += 8) {
      const __m256i power = _mm256_cvtepu8_epi32(j == 0 ? powers : _mm_srli_si128(powers, 8));
      const __m256i half = _mm256_slli_epi32(_mm256_sub_epi32(power, _mm256_set1_epi32(1)), 23);
      const __m256i isNan = _mm256_cmpeq_epi32(power, _mm256_set1_epi32(0xff));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + j),
                         _mm256_blendv_epi8(half, _mm256_set1_epi32(kNan), isNan));
    }
    return (_mm_movemask_epi8(areLow) & ((1 << at.cols) - 1)) == 0;
  }

  template <class Source>
  void bring(const Source& source, int32_t k0, int32_t length, int32_t col, int32_t cols, Code* room,
             Panel& panel) const {
    panel.codes = room, panel.stride = kColumns;
    const B* const from = source.sourceB(col, k0);
    if (args_.transposeB)
      bringColumns(from, length, cols, room);
    else if constexpr (kHasHalves)
      bringHalves(from, length, cols, room);
    else if (cols == kColumns)
      panel.codes = from, panel.stride = args_.b.ld;
    else
      for (int32_t r = 0; r < length; ++r) {
        __builtin_memset(room + r * kColumns, 0, kColumns);
        __builtin_memcpy(room + r * kColumns, from + r * args_.b.ld, static_cast<size_t>(cols));
      }
  }

  void bringHalves(const Nibbles* from, int32_t length, int32_t cols, int8_t* room) const {
    const __m128i expanded = _mm256_castsi256_si128(bytesOfCodes());
    const int64_t ld = args_.b.ld / 2;
    for (int32_t r = 0; r < length; ++r, from += ld, room += kColumns) {
      uint64_t pairs = 0;
      __builtin_memcpy(&pairs, from, cols == kColumns ? sizeof pairs : static_cast<size_t>((cols + 1) / 2));
      const __m128i codes = lowerCodes(_mm_cvtsi64_si128(static_cast<int64_t>(pairs)));
      _mm_store_si128(reinterpret_cast<__m128i*>(room), _mm_shuffle_epi8(expanded, codes));
    }
  }

  // Columns of a transposed b, 16 bytes of each at a time.
  void bringColumns(const B* from, int32_t length, int32_t cols, Code* room) const {
    constexpr int32_t kPerByte = kPerElement<B>;
    const int32_t bytes = (length + kPerByte - 1) / kPerByte;
    const int64_t ld = args_.b.ld / kPerByte;
    for (int32_t r = 0; r < bytes; r += 16) {
      __m128i x[16];
      if (cols == kColumns && bytes - r >= 16) {
        for (int32_t j = 0; j < 16; ++j)
          x[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j * ld + r));
      } else {
        alignas(16) char edge[16][16] = {};
        for (int32_t j = 0; j < cols; ++j)
          __builtin_memcpy(edge[j], from + j * ld + r, static_cast<size_t>(smaller(16, bytes - r)));
        for (int32_t j = 0; j < 16; ++j) x[j] = _mm_load_si128(reinterpret_cast<const __m128i*>(edge[j]));
      }
      transposeBytes(x);
      auto* const to = reinterpret_cast<__m256i*>(room + r * kPerByte * kColumns);
      if constexpr (kHasHalves) {
        const __m256i half = _mm256_set1_epi8(15), expanded = bytesOfCodes();
        for (int32_t j = 0; j < 16; ++j) {
          const __m256i both = _mm256_set_m128i(_mm_srli_epi16(x[j], 4), x[j]);
          _mm256_store_si256(to + j, _mm256_shuffle_epi8(expanded, _mm256_and_si256(both, half)));
        }
      } else {
        for (int32_t j = 0; j < 8; ++j) _mm256_store_si256(to + j, _mm256_set_m128i(x[2 * j + 1], x[2 * j]));
      }
    }
  }

  // numbers[element][column] of a panel.
  template <class Source>
  void decodeTo(const Source& source, int32_t k0, int32_t length, int32_t col, int32_t cols,
                BFloat16* numbers) const {
    if (!args_.transposeB) return source.decodeRows(k0, length, col, cols, numbers, kColumns);
    const int32_t odd = k0 % 2;
    BFloat16 column[kLength + 1];
    for (int32_t j = 0; j < cols; ++j) {
      source.decodeColumns(col + j, 1, k0 - odd, length + odd, column, 0);
      for (int32_t r = 0; r < length; ++r) numbers[r * kColumns + j] = column[r + odd];
    }
  }

  static void addNumbers(const BFloat16* a, int32_t length, const BFloat16* numbers, float* tile) {
    __m256 sum[2] = {_mm256_loadu_ps(tile), _mm256_loadu_ps(tile + 8)};
    for (int32_t r = 0; r < length; ++r, numbers += kColumns) {
      const __m256 row = rowOf(a + r);
      sum[0] = _mm256_fmadd_ps(row, widened(eightAt(numbers)), sum[0]);
      sum[1] = _mm256_fmadd_ps(row, widened(eightAt(numbers + 8)), sum[1]);
    }
    _mm256_storeu_ps(tile, sum[0]);
    _mm256_storeu_ps(tile + 8, sum[1]);
  }

  SLUICE_UNROLLED static __m256 rowOf(const BFloat16* a) {
    return lowerOfPairs(_mm256_set1_epi16(static_cast<int16_t>(a->bits)));
  }

  void addRows(int32_t rows, const BFloat16* a, int64_t lda, int32_t length, const Panel& panel,
               float* tile) const {
    using Function = void (*)(const BFloat16*, int64_t, int32_t, const Panel&, float*);
    static constexpr Function kByRows[2][kRowsOfGroup] = {
        {sized<1, false>, sized<2, false>, sized<3, false>, sized<4, false>},
        {sized<1, kHasHalves>, sized<2, kHasHalves>, sized<3, kHasHalves>, sized<4, kHasHalves>}};
    kByRows[scales_.zero != nullptr][rows - 1](a, lda, length, panel, tile);
  }

  template <int kRows, bool kHasZeros>
  SLUICE_NOT_INLINED static void sized(const BFloat16* a, int64_t lda, int32_t length, const Panel& panel,
                                       float* tile) {
    __m256 sum[kRows][2], scale[2], zero[2];
    unroll<2>([&](auto v) SLUICE_UNROLLED {
      scale[v.value] = _mm256_load_ps(panel.scale + 8 * v.value);
      if constexpr (kHasZeros) zero[v.value] = _mm256_load_ps(panel.zero + 8 * v.value);
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        sum[i.value][v.value] = _mm256_loadu_ps(tile + i.value * kColumns + 8 * v.value);
      });
    });
    const Code* codes = panel.codes;
    for (int32_t r = 0; r < length; ++r, codes += panel.stride, ++a) {
      __m256 column[2];
      unroll<2>([&](auto v) SLUICE_UNROLLED {
        __m256 x = _mm256_mul_ps(eightNumbers(codes + 8 * v.value), scale[v.value]);
        if constexpr (kHasZeros) x = _mm256_add_ps(x, zero[v.value]);
        column[v.value] = roundedNumbers(x);
      });
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const __m256 row = rowOf(a + i.value * lda);
        unroll<2>([&](auto v) SLUICE_UNROLLED {
          sum[i.value][v.value] = _mm256_fmadd_ps(row, column[v.value], sum[i.value][v.value]);
        });
      });
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<2>([&](auto v) SLUICE_UNROLLED {
        _mm256_storeu_ps(tile + i.value * kColumns + 8 * v.value, sum[i.value][v.value]);
      });
    });
  }

  static constexpr int32_t kNan = 0x7fc00000;
  const GmmArgs& args_;
  const BlockScales& scales_;
  const int32_t m_;
  int32_t rowsOfGroup_;
};

}  // namespace
}  // namespace sluice::ops
