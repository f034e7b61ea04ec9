// Vectors of bf16 for AVX2: of 8 of them, and of 8 pairs, words of a lower and an upper one. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

inline __m128i eightAt(const BFloat16* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

inline __m256i pairsAt(const BFloat16* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

inline __m256 widened(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

inline __m256 lowerOfPairs(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline __m256 upperOfPairs(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
}

// x[j], word i = x[i], word j.
SLUICE_UNROLLED inline void transposePairs(__m256i (&x)[8]) {
  __m256i y[8];
  for (int i = 0; i < 4; ++i) {
    y[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
  for (int q = 0; q < 2; ++q) {
    x[4 * q] = _mm256_unpacklo_epi64(y[4 * q], y[4 * q + 2]);
    x[4 * q + 1] = _mm256_unpackhi_epi64(y[4 * q], y[4 * q + 2]);
    x[4 * q + 2] = _mm256_unpacklo_epi64(y[4 * q + 1], y[4 * q + 3]);
    x[4 * q + 3] = _mm256_unpackhi_epi64(y[4 * q + 1], y[4 * q + 3]);
  }
  // x[4q + c], half l: word 4l + c of rows 4q .. 4q + 3
  for (int c = 0; c < 4; ++c) {
    const __m256i low = _mm256_permute2x128_si256(x[c], x[4 + c], 0x20);
    x[4 + c] = _mm256_permute2x128_si256(x[c], x[4 + c], 0x31);
    x[c] = low;
  }
}

// Element r of row j of 8 x 8 elements of 16 bits goes to element j of row r. Rows begin `fromStride` and
// `toStride` bytes apart.
inline void transposeEight(const void* from, int64_t fromStride, void* to, int64_t toStride) {
  const auto* const source = static_cast<const char*>(from);
  auto* const result = static_cast<char*>(to);
  __m128i x[8], y[8];
  for (int j = 0; j < 8; ++j)
    x[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + j * fromStride));
  for (int j = 0; j < 4; ++j) {
    y[2 * j] = _mm_unpacklo_epi16(x[2 * j], x[2 * j + 1]);
    y[2 * j + 1] = _mm_unpackhi_epi16(x[2 * j], x[2 * j + 1]);
  }
  for (int q = 0; q < 2; ++q)  // elements 4 h and 4 h + 2 of rows 4 q to 4 q + 3, h < 2
    for (int h = 0; h < 2; ++h) {
      x[4 * h + q] = _mm_unpacklo_epi32(y[4 * q + h], y[4 * q + 2 + h]);
      x[4 * h + 2 + q] = _mm_unpackhi_epi32(y[4 * q + h], y[4 * q + 2 + h]);
    }
  const auto store = [&](int r, __m128i row) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(result + r * toStride), row);
  };
  for (int r = 0; r < 4; ++r) {
    store(2 * r, _mm_unpacklo_epi64(x[2 * r], x[2 * r + 1]));
    store(2 * r + 1, _mm_unpackhi_epi64(x[2 * r], x[2 * r + 1]));
  }
}

}  // namespace
}  // namespace sluice::ops
