// Decoding of runs of codes, AVX2 form: 16 numbers at a time. Internal linkage: see blocked_product.h.
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

// These are codes of E4M3, as in numberOf().
SLUICE_UNROLLED inline __m256 eightNumbers(const uint8_t* codes) {
  const __m256i code = _mm256_cvtepu8_epi32(eightBytes(codes));
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
  const __m256i subnormal =
      _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9F)));
  const __m256i isSubnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  const __m256i nan =
      _mm256_and_si256(_mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f)), _mm256_set1_epi32(0x7fc00000));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
  return _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_or_si256(_mm256_blendv_epi8(normal, subnormal, isSubnormal), nan), sign));
}

// Words whose upper halves are the bf16 next to numbers of which a NaN has no bits below these.
SLUICE_UNROLLED inline __m256i roundedUpperHalves(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

// Their bits.
SLUICE_UNROLLED inline __m256i roundedBits(__m256 x) { return _mm256_srli_epi32(roundedUpperHalves(x), 16); }

// The bits of any numbers; a NaN is a quiet one.
SLUICE_UNROLLED inline __m256i roundedBitsOrNan(__m256 x) {
  const __m256i isNan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(roundedBits(x), _mm256_srli_epi32(_mm256_castps_si256(x), 16), isNan);
}

// 16 words of 16 bits, of 8 and 8 of 32 bits.
SLUICE_UNROLLED inline __m256i wordsOf(__m256i first, __m256i second) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
}

// to[j] = eight(j), eight bits of numbers, for whole sixteens of `count`. Returns how many.
template <class Eight>
SLUICE_UNROLLED inline int32_t storeSixteens(int32_t count, const Eight& eight, BFloat16* to) {
  int32_t j = 0;
  for (; j + 16 <= count; j += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), wordsOf(eight(j), eight(j + 8)));
  }
  return j;
}

// The first numbers of a run whose scale and zero are no NaN, in whole sixteens. Returns how many.
template <class Code>
int32_t decodeSixteens(const Code* codes, int32_t count, float scale, float zero, BFloat16* to) {
  const __m256 by = _mm256_set1_ps(scale), plus = _mm256_set1_ps(zero);
  const auto eight = [&](int32_t j) SLUICE_UNROLLED {
    return roundedBits(_mm256_add_ps(_mm256_mul_ps(eightNumbers(codes + j), by), plus));
  };
  return storeSixteens(count, eight, to);
}

// The same of numbers with own scales, and zeros unless null.
template <class Code>
int32_t decodeSixteens(const Code* codes, int32_t count, const float* scales, const float* zeros,
                       BFloat16* to) {
  const auto scaled = [&](int32_t j) SLUICE_UNROLLED {
    return _mm256_mul_ps(eightNumbers(codes + j), _mm256_loadu_ps(scales + j));
  };
  if (zeros == nullptr)
    return storeSixteens(count, [&](int32_t j) SLUICE_UNROLLED { return roundedBitsOrNan(scaled(j)); }, to);
  const auto eight = [&](int32_t j) SLUICE_UNROLLED {
    return roundedBitsOrNan(_mm256_add_ps(scaled(j), _mm256_loadu_ps(zeros + j)));
  };
  return storeSixteens(count, eight, to);
}

}  // namespace
}  // namespace sluice::ops
