// Packing for the units that multiply pairs of bf16 (AVX-512 BF16 and AMX).
//
// A packed: [rows][kAStride], the elements of the sum in order. B packed: [k / 2][kNr] pairs, the lower half
// of a pair being the element of even k. Both are padded with zeros to a multiple of Unit::kKUnit elements of
// the sum (a pad against an infinity must not give a NaN). Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace sluice::ops {
namespace {

// Words (pairs of bf16) of a square that is transposed at once.
constexpr int32_t kSquare = 16;

#if defined(__AVX512F__)
// dst[j][i] = src[i][j] for 16 x 16 words; strides in bytes, no alignment.
inline void transposeSquare(const void* src, int64_t srcStride, void* dst, int64_t dstStride) {
  const auto* const from = static_cast<const char*>(src);
  auto* const to = static_cast<char*>(dst);
  __m512i x[16], y[16];
  for (int i = 0; i < 16; ++i) x[i] = _mm512_loadu_si512(from + i * srcStride);
  for (int i = 0; i < 8; ++i) {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
  // x[4q + c], 128-bit lane l: word 4l + c of rows 4q .. 4q + 3
  for (int q = 0; q < 4; ++q) {
    x[4 * q] = _mm512_unpacklo_epi64(y[4 * q], y[4 * q + 2]);
    x[4 * q + 1] = _mm512_unpackhi_epi64(y[4 * q], y[4 * q + 2]);
    x[4 * q + 2] = _mm512_unpacklo_epi64(y[4 * q + 1], y[4 * q + 3]);
    x[4 * q + 3] = _mm512_unpackhi_epi64(y[4 * q + 1], y[4 * q + 3]);
  }
  // The last two steps transpose the 4 x 4 lanes of every c.
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xee);
    _mm512_storeu_si512(to + (0 + c) * dstStride, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(to + (4 + c) * dstStride, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_storeu_si512(to + (8 + c) * dstStride, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(to + (12 + c) * dstStride, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}
#else
inline void transposeSquare(const void* src, int64_t srcStride, void* dst, int64_t dstStride) {
  for (int i = 0; i < kSquare; ++i)
    for (int j = 0; j < kSquare; ++j)
      __builtin_memcpy(static_cast<char*>(dst) + j * dstStride + i * 4,
                       static_cast<const char*>(src) + i * srcStride + j * 4, 4);
}
#endif

template <class Unit>
struct PackBf16 {
  using Element = uint16_t;

  static int32_t padded(int32_t k) { return static_cast<int32_t>(roundUp(k, Unit::kKUnit)); }

  // dst[i][0, k) = src[i][0, k).
  static void copyRows(const BFloat16* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i) {
      Element* const to = dst + int64_t{i} * Unit::kAStride;
      __builtin_memcpy(to, src + i * ld, static_cast<size_t>(k) * 2);
      for (int32_t j = k; j < padded(k); ++j) to[j] = 0;
    }
  }

  // Pairs (p, p + 16) of src rows as words of a square: square[p][i] = src[2p][i], src[2p + 1][i], each times
  // its scale; rows from k on and columns from `columns` on are zero.
  static void pairSquare(const BFloat16* src, int64_t ld, const float* scale, int32_t columns, int32_t k,
                         uint32_t (*square)[kSquare]) {
    for (int32_t p = 0; p < kSquare; ++p) {
      uint16_t half[2][kSquare] = {};
      for (int32_t h = 0; h < 2 && 2 * p + h < k; ++h) {
        const BFloat16* const from = src + (2 * p + h) * ld;
        if (columns == kSquare)
          __builtin_memcpy(half[h], from, sizeof half[h]);
        else
          __builtin_memcpy(half[h], from, static_cast<size_t>(columns) * 2);
        if (scale == nullptr) continue;
        for (int32_t i = 0; i < kSquare; ++i)
          half[h][i] = roundToBf16(widenBf16(half[h][i]) * scale[2 * p + h]);
        // A pad times an infinite scale would be a NaN.
        for (int32_t i = columns; i < kSquare; ++i) half[h][i] = 0;
      }
      for (int32_t i = 0; i < kSquare; ++i)
        square[p][i] = half[0][i] | static_cast<uint32_t>(half[1][i]) << 16;
    }
  }

  // dst[i][r] = src[r][i] * scale[r] for i < rows, r < k.
  static void transposeScaled(const BFloat16* src, int64_t ld, const float* scale, int32_t rows, int32_t k,
                              Element* dst) {
    alignas(64) uint32_t square[kSquare][kSquare];
    for (int32_t i = 0; i < rows; i += kSquare)
      for (int32_t r = 0; r < k; r += 2 * kSquare) {
        pairSquare(src + r * ld + i, ld, scale == nullptr ? nullptr : scale + r, smaller(kSquare, rows - i),
                   smaller(2 * kSquare, k - r), square);
        transposeSquare(square, sizeof square[0], dst + int64_t{i} * Unit::kAStride + r, Unit::kAStride * 2);
      }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, Element* dst) {
    constexpr int32_t kNr = Unit::kNr;
    for (int32_t r = 0; r < padded(k); r += 2, dst += 2 * kNr) {
      if (cols == kNr && r + 1 < k) {
        interleave(src + r * ld, src + (r + 1) * ld, dst);
        continue;
      }
      BFloat16 row[2][kNr] = {};
      for (int32_t h = 0; h < 2 && r + h < k; ++h)
        __builtin_memcpy(row[h], src + (r + h) * ld, static_cast<size_t>(cols) * 2);
      interleave(row[0], row[1], dst);
    }
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, Element* dst) {
    constexpr int64_t kDstStride = Unit::kNr * 4;
    for (int32_t j = 0; j < Unit::kNr; j += kSquare)
      for (int32_t r = 0; r < k; r += 2 * kSquare) {
        Element* const to = dst + int64_t{r} * Unit::kNr + 2 * j;
        const BFloat16* const from = src + j * ld + r;
        if (cols - j >= kSquare && k - r >= 2 * kSquare) {
          transposeSquare(from, ld * 2, to, kDstStride);
          continue;
        }
        uint16_t square[kSquare][2 * kSquare] = {};
        for (int32_t i = 0; i < kSquare && j + i < cols; ++i)
          __builtin_memcpy(square[i], from + i * ld, static_cast<size_t>(smaller(2 * kSquare, k - r)) * 2);
        transposeSquare(square, sizeof square[0], to, kDstStride);
      }
  }

 private:
  static void interleave(const BFloat16* even, const BFloat16* odd, Element* __restrict dst) {
    for (int32_t j = 0; j < Unit::kNr; ++j) {
      dst[2 * j] = even[j].bits;
      dst[2 * j + 1] = odd[j].bits;
    }
  }
};

}  // namespace
}  // namespace sluice::ops
