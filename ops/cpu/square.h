// Squares of 16 x 16 words, a word being a pair of bf16: the unit in which packing transposes.
//
// Two forms: AVX-512, and plain loops for the emulated AMX kernels on machines without AVX-512. With AVX-512
// also two rows of bf16 as pairs (Interleaved). Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "runtime/base/dtype.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace sluice::ops {
namespace {

// The side in words (pairs of bf16) of a square.
constexpr int32_t kSquare = 16;

// dst[j][i] = src[i][j] for 16 x 16 words; strides in bytes, no alignment.
inline void transposeSquare(const void* src, int64_t srcStride, void* dst, int64_t dstStride);

// squares[h][p][i] = the pair (src[2p][j] * scale[2p], src[2p + 1][j] * scale[2p + 1]) of column j = h *
// kSquare + i for 2p < k; rows of the squares from k on are zero, and so is the second half of the last pair
// of an odd k. Columns from `columns` on are not read; the values of the squares there only reach rows of the
// result that are never stored.
inline void pairSquares(const BFloat16* src, int64_t ld, const float* scale, int32_t columns, int32_t k,
                        uint32_t (*squares)[kSquare][kSquare]);

#if defined(__AVX512BF16__)

// Pairs of two rows of 32 columns, in the order of the unpack instructions: the first vector has the
// columns 8l to 8l + 3, the second 8l + 4 to 8l + 7 (l = 0 to 3).
struct Interleaved {
  __m512i half[2];
};

inline Interleaved interleave(__m512i even, __m512i odd) {
  return {{_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)}};
}

// The sums of an Interleaved in the order of the columns.
inline void putInOrder(__m512& first, __m512& second) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const __m512 before = first;
  first = _mm512_permutex2var_ps(before, low, second);
  second = _mm512_permutex2var_ps(before, high, second);
}

// The first ones of 32 columns.
inline __mmask32 makeMask(int32_t columns) {
  if (columns <= 0) return 0;
  return columns >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << columns) - 1);
}

// Pairs (even[j], odd[j]) of the columns j from 0 to 15, and from 16 to 31.
inline __m512i firstPairs(__m512i even, __m512i odd) {
  const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                                         38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  return _mm512_permutex2var_epi16(even, order, odd);
}
inline __m512i secondPairs(__m512i even, __m512i odd) {
  const __m512i order = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55,
                                         23, 54, 22, 53, 21, 52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
  return _mm512_permutex2var_epi16(even, order, odd);
}

// Within each 128-bit lane: word i of x[j] = word j of x[i], of four vectors.
__attribute__((always_inline)) inline void transposeLanes(__m512i* x) {
  const __m512i low01 = _mm512_unpacklo_epi32(x[0], x[1]), high01 = _mm512_unpackhi_epi32(x[0], x[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(x[2], x[3]), high23 = _mm512_unpackhi_epi32(x[2], x[3]);
  x[0] = _mm512_unpacklo_epi64(low01, low23);
  x[1] = _mm512_unpackhi_epi64(low01, low23);
  x[2] = _mm512_unpacklo_epi64(high01, high23);
  x[3] = _mm512_unpackhi_epi64(high01, high23);
}

// x[j], word i = x[i], word j.
inline void transposeInPlace(__m512i (&x)[kSquare]) {
  // x[4q + c], 128-bit lane l: word 4l + c of rows 4q .. 4q + 3
  for (int q = 0; q < 4; ++q) transposeLanes(x + 4 * q);
  // The last two steps transpose the 4 x 4 lanes of every c.
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xee);
    x[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    x[4 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    x[8 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    x[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
}

inline void transposeSquare(const void* src, int64_t srcStride, void* dst, int64_t dstStride) {
  const auto* const from = static_cast<const char*>(src);
  auto* const to = static_cast<char*>(dst);
  __m512i x[kSquare];
  for (int i = 0; i < kSquare; ++i) x[i] = _mm512_loadu_si512(from + i * srcStride);
  transposeInPlace(x);
  for (int i = 0; i < kSquare; ++i) _mm512_storeu_si512(to + i * dstStride, x[i]);
}

inline void pairSquares(const BFloat16* src, int64_t ld, const float* scale, int32_t columns, int32_t k,
                        uint32_t (*squares)[kSquare][kSquare]) {
  const __mmask32 mask = makeMask(columns);
  const auto load = [&](int32_t r) {
    return r < k ? _mm512_maskz_loadu_epi16(mask, src + r * ld) : _mm512_setzero_si512();
  };
  // The columns of a square, each number in the upper half of a word.
  const auto widened = [](__m256i row) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(row), 16));
  };
  // Row r in the low halves of words; vcvtne2ps2bf16 treats denormals as zero, but so does the product.
  const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                       22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto scaled = [&](__m256i even, __m512 byEven, __m256i odd, __m512 byOdd) {
    return _mm512_permutexvar_epi16(zip, (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(widened(odd), byOdd),
                                                                      _mm512_mul_ps(widened(even), byEven)));
  };
  for (int32_t p = 0; p < kSquare; ++p) {
    const int32_t r = 2 * p;
    const __m512i even = load(r), odd = load(r + 1);
    __m512i pairs[2] = {firstPairs(even, odd), secondPairs(even, odd)};
    if (scale != nullptr && r < k) {
      const __m512 byEven = _mm512_set1_ps(scale[r]);
      const __m512 byOdd = r + 1 < k ? _mm512_set1_ps(scale[r + 1]) : _mm512_setzero_ps();
      pairs[0] = scaled(_mm512_castsi512_si256(even), byEven, _mm512_castsi512_si256(odd), byOdd);
      pairs[1] = scaled(_mm512_extracti64x4_epi64(even, 1), byEven, _mm512_extracti64x4_epi64(odd, 1), byOdd);
    }
    for (int h = 0; h < 2; ++h) _mm512_store_si512(squares[h][p], pairs[h]);
  }
}

#else

inline void transposeSquare(const void* src, int64_t srcStride, void* dst, int64_t dstStride) {
  for (int i = 0; i < kSquare; ++i)
    for (int j = 0; j < kSquare; ++j)
      __builtin_memcpy(static_cast<char*>(dst) + j * dstStride + i * 4,
                       static_cast<const char*>(src) + i * srcStride + j * 4, 4);
}

inline void pairSquares(const BFloat16* src, int64_t ld, const float* scale, int32_t columns, int32_t k,
                        uint32_t (*squares)[kSquare][kSquare]) {
  for (int32_t p = 0; p < kSquare; ++p)
    for (int32_t j = 0; j < 2 * kSquare; ++j) {
      uint32_t half[2] = {0, 0};
      for (int32_t h = 0; h < 2 && 2 * p + h < k && j < columns; ++h) {
        const BFloat16 x = src[(2 * p + h) * ld + j];
        half[h] = scale == nullptr ? x.bits : roundToBf16(widenBf16(x.bits) * scale[2 * p + h]);
      }
      squares[j / kSquare][p][j % kSquare] = half[0] | half[1] << 16;
    }
}

#endif

}  // namespace
}  // namespace sluice::ops
