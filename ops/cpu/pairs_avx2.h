// Vectors of bf16 for AVX2: of 8 of them, and of 8 pairs, words of a lower and an upper one; and the
// multiply-add of fp32. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

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

// sum += x * y. In assembly, because g++ 12 otherwise moves sums of unrolled loops between registers and,
// as there are none left, to memory.
SLUICE_UNROLLED inline void multiplyAdd(__m256& sum, __m256 x, __m256 y) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
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

}  // namespace
}  // namespace sluice::ops
