// Computes sixteen numbers in registers from their codes: code times scale, plus the zero of its block if
// there are zeros, rounded once to bf16 at the end, as decode.h says. Internal linkage: see
// blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/decode_avx2.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// Codes of 8 bits are whole numbers or E4M3. Codes of 4 bits are whole numbers from -8 on, whole numbers from
// 0 on with zeros, or E2M1, whose scales have so few bits that numbers are not rounded.
enum class CodeKind { kWhole, kE4m3, kNibbles, kNibblesWithZeros, kE2m1 };

constexpr bool isOfFourBits(CodeKind kind) { return kind >= CodeKind::kNibbles; }

// Scales and zeros must be smaller than this, so that roundByProducts() never overflows.
constexpr float kMaxScale = 0x1p96F;

// Returns the nearest bf16, ties to even, if x * 2^16 is finite; a NaN stays one. `rest` is 2^16 x - x,
// rounded at the last bit that a bf16 near x has, so 2^16 x - rest is x rounded there. Where 2^16 x - x has
// one bit less than 2^16 x, x is so near a power of two that it is rounded to that either way.
SLUICE_UNROLLED inline __m256 roundByProducts(__m256 x) {
  const __m256 rest = _mm256_mul_ps(x, _mm256_set1_ps(0xffff));
  return _mm256_fmsub_ps(x, _mm256_set1_ps(0x10000), rest);
}

// A code of E4M3 has the exponent and the mantissa of an fp16 that is so many times as small, so its scale is
// multiplied by this.
constexpr float kScaleOfE4m3 = 256;
SLUICE_UNROLLED inline void sixteenE4m3(const void* codes, __m256 (&x)[2]) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(codes)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(-0x4001));
  const __m256i most = _mm256_set1_epi16(0x3f80);
  const __m256i isNan = _mm256_cmpeq_epi16(_mm256_and_si256(halves, most), most);
  const __m256i all = _mm256_or_si256(halves, _mm256_and_si256(isNan, _mm256_set1_epi16(0x7e00)));
  x[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(all));
  x[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(all, 1));
}

// Returns the numbers of the three lower bits of each word, with the signs of `signs`.
SLUICE_UNROLLED inline __m256 eightE2m1(__m256i words, __m256i signs) {
  const __m256 magnitudes = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);
  const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(signs), _mm256_set1_ps(-0.0F));
  return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, words), sign);
}

// x becomes the numbers of 16 bytes; or of the lower halves of 8 bytes, and then of their upper halves. `by`
// has the scales, with kE4m3 times kScaleOfE4m3; `plus` has the zeros, or with kNibbles -8 times the scales.
template <CodeKind kKind>
SLUICE_UNROLLED inline void decodeSixteen(const void* codes, const __m256 (&by)[2], const __m256 (&plus)[2],
                                          __m256 (&x)[2]) {
  if constexpr (kKind == CodeKind::kWhole) {
    const auto* const bytes = static_cast<const int8_t*>(codes);
    unroll<2>([&](auto v) SLUICE_UNROLLED {
      x[v.value] = roundByProducts(_mm256_mul_ps(eightNumbers(bytes + 8 * v.value), by[v.value]));
    });
  } else if constexpr (kKind == CodeKind::kE4m3) {
    sixteenE4m3(codes, x);
    unroll<2>([&](auto v)
                  SLUICE_UNROLLED { x[v.value] = roundByProducts(_mm256_mul_ps(x[v.value], by[v.value])); });
  } else {
    const __m256i bytes = _mm256_cvtepu8_epi32(eightBytes(codes)), upper = _mm256_srli_epi32(bytes, 4);
    if constexpr (kKind == CodeKind::kE2m1) {
      x[0] = _mm256_mul_ps(eightE2m1(bytes, _mm256_slli_epi32(bytes, 28)), by[0]);
      x[1] = _mm256_mul_ps(eightE2m1(upper, _mm256_slli_epi32(bytes, 24)), by[1]);
      return;
    }
    const __m256 whole[2] = {_mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(15))),
                             _mm256_cvtepi32_ps(upper)};
    unroll<2>([&](auto v) SLUICE_UNROLLED {
      // (code - 8) * by, rounded once, is code * by - 8 * by in one instruction: 8 * by is exact
      x[v.value] =
          roundByProducts(kKind == CodeKind::kNibbles
                              ? _mm256_fmadd_ps(whole[v.value], by[v.value], plus[v.value])
                              : _mm256_add_ps(_mm256_mul_ps(whole[v.value], by[v.value]), plus[v.value]));
    });
  }
}

}  // namespace
}  // namespace sluice::ops
