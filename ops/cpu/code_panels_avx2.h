// Finds the scales of panels of 16 columns of a weight that has codes, brings the codes into the order of a
// panel, and decodes them, AVX2 form. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/decode.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/numbers_avx2.h"
#include "ops/cpu/pairs_avx2.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/unroll.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Byte i of x[j] becomes byte j of x[i], in each half of the vectors.
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

// Each Source is a DecodedSource with the same arguments. What is rare is decoded to numbers of bf16 first:
// scales that leave no room for rounding by products, the least power of two, and codes of 4 bits from an odd
// element on.
template <class B>
class CodePanelsAvx2 {
 public:
  static constexpr int32_t kColumns = 16;
  static constexpr int32_t kPerByte = static_cast<int32_t>(kPerElement<B>);
  static constexpr bool kHasHalves = kPerByte == 2;
  static constexpr int32_t kLine = kLineBytes * kPerByte;      // codes of a cache line
  static constexpr int32_t kPanelBytes = kColumns / kPerByte;  // of a row

  // A panel has these scales, and numbers that are added. If a byte has the codes of two columns, columns of
  // even number come first.
  struct Scales {
    alignas(32) float by[kColumns], plus[kColumns];
  };
  // The elements of the sum from `first` on share the scales of `block`.
  struct Stretch {
    int32_t first, end, block;
  };

  explicit CodePanelsAvx2(const GmmArgs& args) : args_(args), scales_(args.scaleB) {}

  // Returns the stretch from k0 on, up to `end`.
  Stretch stretchFrom(int32_t k0, int32_t end) const {
    const int32_t along = args_.transposeB ? scales_.columns : scales_.rows;
    const int32_t before = args_.transposeB ? scales_.firstColumn : scales_.firstRow;
    const int32_t block = (before + k0) / along;
    return {k0, smaller(along - (before + k0 - block * along), end - k0) + k0, block};
  }

  // Copies the scales of the panel in a block of the sum. Returns whether decodeSixteen() can use them.
  SLUICE_NOT_INLINED bool findScales(int32_t block, int32_t col, int32_t cols, Scales& scales) const {
    const bool turned = args_.transposeB;
    const ScalesAt at = {turned ? block : block * scales_.ld, turned ? scales_.ld : 1, cols,
                         (turned ? scales_.firstRow : scales_.firstColumn) + col,
                         turned ? scales_.rows : scales_.columns};
    if constexpr (!kHasHalves) {
      const bool isCommon = copyScales(at, scales.by);
      if constexpr (__is_same(B, uint8_t))
        for (float& by : scales.by) by *= kScaleOfE4m3;
      return isCommon;
    }
    const bool isCommon = scales_.type == DType::kF8_E8M0   ? copyPowers(at, scales.by)
                          : scales_.type == DType::kF8_E4M3 ? copyE4m3(at, scales.by)
                                                            : copyScales(at, scales.by);
    const bool hasZeros = scales_.zero != nullptr;
    const bool areCommon = !hasZeros || copyZeros(at, scales.by, scales.plus);
    if (!turned) evenFirst(scales.by);
    if (!hasZeros) {
      for (int32_t j = 0; j < kColumns; j += 8)
        _mm256_store_ps(scales.plus + j,
                        _mm256_mul_ps(_mm256_set1_ps(-kHalf), _mm256_load_ps(scales.by + j)));
      return isCommon;
    }
    if (!turned) evenFirst(scales.plus);
    return isCommon && areCommon;
  }

  // Brings columns of a transposed b, 32 bytes of each at a time.
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
  // Brings rows of a b that is [k, n], kPanelBytes bytes of each, where a panel has fewer columns.
  void bringRows(const B* from, int32_t length, int32_t cols, uint8_t* room) const {
    const int64_t ld = args_.b.ld / kPerByte;
    for (int32_t r = 0; r < length; ++r, from += ld, room += kPanelBytes) {
      __builtin_memset(room, 0, kPanelBytes);
      __builtin_memcpy(room, from, static_cast<size_t>((cols - 1) / kPerByte + 1));
    }
  }

  // Calls use(Index<kind>()) with the kind of the codes.
  template <class Use>
  void withKind(const Use& use) const {
    if constexpr (!kHasHalves)
      use(Index<static_cast<int>(__is_same(B, int8_t) ? CodeKind::kWhole : CodeKind::kE4m3)>());
    else if (areCodes(scales_))
      use(Index<static_cast<int>(CodeKind::kE2m1)>());
    else if (scales_.zero != nullptr)
      use(Index<static_cast<int>(CodeKind::kNibblesWithZeros)>());
    else
      use(Index<static_cast<int>(CodeKind::kNibbles)>());
  }

  // The scales of a panel that were found last.
  struct Found {
    Scales scales;
    int32_t block = -1;
    bool isCommon = false;
  };
  // Calls common(r, count) for each stretch, elements k0 + r to k0 + r + count, if decodeSixteen() can use
  // its codes and its scales, which are in `found`; else rare(r, count). k0 is a multiple of kLine.
  template <class Common, class Rare>
  void eachStretch(int32_t k0, int32_t length, int32_t col, int32_t cols, Found& found, const Common& common,
                   const Rare& rare) const {
    for (int32_t r = 0, count; r < length; r += count) {
      const Stretch stretch = stretchFrom(k0 + r, k0 + length);
      count = stretch.end - stretch.first;
      if (stretch.block != found.block) found.isCommon = findScales(stretch.block, col, cols, found.scales);
      found.block = stretch.block;
      if (found.isCommon && (!args_.transposeB || r % kPerByte == 0))
        common(r, count);
      else
        rare(r, count);
    }
  }

  // Decodes elements of a panel that share scales, at most kLine, to to[element][column].
  template <class Source>
  SLUICE_NOT_INLINED void decodeRare(const Source& source, int32_t k0, int32_t length, int32_t col,
                                     int32_t cols, float* to) const {
    BFloat16 numbers[kLine * kColumns], column[kLine + 1];
    const int32_t odd = k0 % 2;
    if (!args_.transposeB) source.decodeRows(k0, length, col, cols, numbers, kColumns);
    for (int32_t j = 0; args_.transposeB && j < cols; ++j) {
      source.decodeColumns(col + j, 1, k0 - odd, length + odd, column, 0);
      for (int32_t r = 0; r < length; ++r) numbers[r * kColumns + j] = column[r + odd];
    }
    for (int32_t j = 0; j < length * kColumns; ++j) to[j] = widenBf16(numbers[j].bits);
  }

  // Decodes k elements of a panel from k0 on, a multiple of kLine, to to[element][column].
  template <class Source>
  void decode(const Source& source, int32_t col, int32_t cols, int32_t k0, int32_t k, float* to) const {
    alignas(32) uint8_t room[kLineBytes * kColumns];
    Found found;
    for (int32_t part = 0; part < k; part += kLine) {
      const int32_t length = smaller(kLine, k - part), begin = k0 + part;
      const B* const from = source.sourceB(col, begin);
      const char* codes = reinterpret_cast<const char*>(from);
      int64_t stride = args_.b.ld / kPerByte;
      if (args_.transposeB) {
        bringColumns(from, length, cols, room);
        codes = reinterpret_cast<const char*>(room), stride = kColumns;
      } else if (cols < kColumns) {
        bringRows(from, length, cols, room);
        codes = reinterpret_cast<const char*>(room), stride = kPanelBytes;
      }
      float* const panel = to + part * kColumns;
      eachStretch(
          begin, length, col, cols, found,
          [&](int32_t r, int32_t count) {
            decodeStretch(codes + (args_.transposeB ? r / kPerByte : r) * stride, stride, count, found.scales,
                          panel + r * kColumns);
          },
          [&](int32_t r, int32_t count) {
            decodeRare(source, begin + r, count, col, cols, panel + r * kColumns);
          });
    }
  }

  // Puts the columns of even number before the others, of 16.
  static void evenFirst(float* x) {
    const __m256 first = _mm256_loadu_ps(x), second = _mm256_loadu_ps(x + 8);
    const auto inOrder = [](__m256 y) SLUICE_UNROLLED {
      return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(y), 0xd8));
    };
    _mm256_storeu_ps(x, inOrder(_mm256_shuffle_ps(first, second, 0x88)));
    _mm256_storeu_ps(x + 8, inOrder(_mm256_shuffle_ps(first, second, 0xdd)));
  }
  // Puts the columns of even number and the others in their order again.
  SLUICE_UNROLLED static void interleave(__m256 (&x)[2]) {
    const __m256 some = _mm256_unpacklo_ps(x[0], x[1]), others = _mm256_unpackhi_ps(x[0], x[1]);
    x[0] = _mm256_permute2f128_ps(some, others, 0x20);
    x[1] = _mm256_permute2f128_ps(some, others, 0x31);
  }

 private:
  // This says where the scales of 16 columns are, of which `cols` exist. They are columns `first` + j of the
  // matrix, of which `across` share a scale.
  struct ScalesAt {
    int64_t from, step;
    int32_t cols, first, across;

    // Returns the value of each column, 0 beyond `cols`; in `room`, unless they lie side by side.
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

  // Stores sixteen numbers, of which `number` returns eight from one on. Returns whether decodeSixteen() can
  // use them.
  template <class Number>
  SLUICE_UNROLLED static bool storeAll(const Number& number, float* to) {
    const auto stored = [&](int32_t j) SLUICE_UNROLLED {
      const __m256 x = number(j), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
      _mm256_store_ps(to + j, x);
      return _mm256_cmp_ps(size, _mm256_set1_ps(kMaxScale), _CMP_LT_OQ);
    };
    return _mm256_movemask_ps(_mm256_and_ps(stored(0), stored(8))) == 0xff;
  }

  SLUICE_UNROLLED static bool copyFloats(const void* plane, const ScalesAt& at, float* to) {
    float room[kColumns];
    const float* const from = at.find(static_cast<const float*>(plane), room);
    return storeAll([&](int32_t j) SLUICE_UNROLLED { return _mm256_loadu_ps(from + j); }, to);
  }

  SLUICE_UNROLLED bool copyScales(const ScalesAt& at, float* to) const {
    if (!kHasHalves || scales_.type == DType::kF32) return copyFloats(scales_.data, at, to);
    uint16_t room[kColumns];
    const uint16_t* const from = at.find(static_cast<const uint16_t*>(scales_.data), room);
    const auto eight = [&](int32_t j) SLUICE_UNROLLED {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j));
    };
    if (scales_.type == DType::kF16)
      return storeAll([&](int32_t j) SLUICE_UNROLLED { return _mm256_cvtph_ps(eight(j)); }, to);
    return storeAll(
        [&](int32_t j) SLUICE_UNROLLED {
          return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight(j)), 16));
        },
        to);
  }

  // `by` are the scales.
  SLUICE_UNROLLED bool copyZeros(const ScalesAt& at, const float* by, float* to) const {
    if (scales_.type == DType::kF32) return copyFloats(scales_.zero, at, to);
    int8_t room[kColumns];
    const int8_t* const from = at.find(static_cast<const int8_t*>(scales_.zero), room);
    return storeAll(
        [&](int32_t j) SLUICE_UNROLLED {
          const __m128i zeros = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + j));
          const __m256 zero = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(zeros));
          return _mm256_mul_ps(_mm256_sub_ps(_mm256_setzero_ps(), zero), _mm256_load_ps(by + j));
        },
        to);
  }

  SLUICE_UNROLLED bool copyPowers(const ScalesAt& at, float* to) const {
    uint8_t room[kColumns];
    const __m128i powers = _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(at.find(static_cast<const uint8_t*>(scales_.data), room)));
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

  SLUICE_UNROLLED bool copyE4m3(const ScalesAt& at, float* to) const {
    uint8_t room[kColumns];
    __m256 x[2];
    sixteenE4m3(at.find(static_cast<const uint8_t*>(scales_.data), room), x);
    for (int32_t v = 0; v < 2; ++v)
      _mm256_store_ps(to + 8 * v, _mm256_mul_ps(x[v], _mm256_set1_ps(kScaleOfE4m3)));
    return true;
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

  // Decodes `count` elements. If b is transposed and kHasHalves, a step of codes has two of them.
  void decodeStretch(const char* codes, int64_t stride, int32_t count, const Scales& scales,
                     float* to) const {
    withKind([&](auto kind) {
      constexpr auto kKind = static_cast<CodeKind>(decltype(kind)::value);
      if (kHasHalves && args_.transposeB)
        decodePairs<kKind>(codes, count, scales, to);
      else
        decodeElements<kKind>(codes, stride, count, scales, to);
    });
  }
  template <CodeKind kKind>
  SLUICE_NOT_INLINED static void decodeElements(const char* codes, int64_t stride, int32_t count,
                                                const Scales& scales, float* to) {
    const __m256 by[2] = {_mm256_load_ps(scales.by), _mm256_load_ps(scales.by + 8)};
    const __m256 plus[2] = {_mm256_load_ps(scales.plus), _mm256_load_ps(scales.plus + 8)};
    for (int32_t r = 0; r < count; ++r, codes += stride, to += kColumns) {
      __m256 x[2];
      decodeSixteen<kKind>(codes, by, plus, x);
      if constexpr (kHasHalves) interleave(x);
      _mm256_storeu_ps(to, x[0]);
      _mm256_storeu_ps(to + 8, x[1]);
    }
  }
  template <CodeKind kKind>
  SLUICE_NOT_INLINED static void decodePairs(const char* codes, int32_t count, const Scales& scales,
                                             float* to) {
    for (int32_t r = 0; r < count; r += 2, codes += kColumns, to += 2 * kColumns)
      unroll<2>([&](auto v) SLUICE_UNROLLED {
        const __m256 by = _mm256_load_ps(scales.by + 8 * v.value);
        const __m256 plus = _mm256_load_ps(scales.plus + 8 * v.value);
        __m256 x[2];
        decodeSixteen<kKind>(codes + 8 * v.value, {by, by}, {plus, plus}, x);
        _mm256_storeu_ps(to + 8 * v.value, x[0]);
        if (r + 1 < count) _mm256_storeu_ps(to + kColumns + 8 * v.value, x[1]);
      });
  }

 protected:
  const GmmArgs& args_;

 private:
  const BlockScales& scales_;
};

}  // namespace
}  // namespace sluice::ops
