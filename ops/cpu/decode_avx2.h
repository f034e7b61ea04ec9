// What decodes codes by AVX2 shares. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

inline __m128i eightBytes(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }

// The 16 codes of 4 bits in the lower 8 bytes of `pairs`, a byte each.
SLUICE_UNROLLED inline __m128i lowerCodes(__m128i pairs) {
  const __m128i half = _mm_set1_epi8(15);
  return _mm_unpacklo_epi8(_mm_and_si128(pairs, half), _mm_and_si128(_mm_srli_epi16(pairs, 4), half));
}

SLUICE_UNROLLED inline __m256 eightNumbers(const int8_t* codes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eightBytes(codes)));
}

// Returns the bits of the nearest bf16 numbers. A NaN in x must be one of bf16.
SLUICE_UNROLLED inline __m256i roundedBits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}

// The bits of any numbers; a NaN is a quiet one.
SLUICE_UNROLLED inline __m256i roundedBitsOrNan(__m256 x) {
  const __m256i isNan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(roundedBits(x), _mm256_srli_epi32(_mm256_castps_si256(x), 16), isNan);
}

// 16 words of 16 bits, of 8 and 8 of 32 bits.
SLUICE_UNROLLED inline __m256i packWords(__m256i first, __m256i second) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
}

}  // namespace
}  // namespace sluice::ops
