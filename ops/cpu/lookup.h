// Codes of 4 bits that share a scale, to bf16 numbers: the numbers of all codes are computed once per block,
// and each code is looked up among them. And codes of E2M1 whose scales are codes, of E8M0 or E4M3.
//
// Two forms: AVX2, which looks up both bytes of a number by shuffles, and plain loops. Internal linkage: see
// blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"
#if defined(__AVX2__)
#include "ops/cpu/decode_avx2.h"
#endif

namespace sluice::ops {
namespace {

inline int32_t codeAt(const Nibbles* codes, int32_t index) {
  return codes[index / 2].bits >> (index % 2 * 4) & 15;
}

// Returns fromE4m3(code), in a form that compilers vectorise.
inline float numberOf(uint8_t code) {
  const int32_t magnitude = code & 0x7f;
  const int32_t normal = (magnitude << 20) + (120 << 23);
  const auto subnormal = __builtin_bit_cast(int32_t, static_cast<float>(magnitude) * 0x1p-9F);
  const int32_t isSubnormal = -static_cast<int32_t>(magnitude < 8);
  const int32_t nan = -static_cast<int32_t>(magnitude == 0x7f) & 0x7fc00000;
  return __builtin_bit_cast(float,
                            (subnormal & isSubnormal) | (normal & ~isSubnormal) | nan | (code & 0x80) << 24);
}

// Returns the number, of which `twice` is the double, times a scale. It has at most six significant bits, so
// it is a bf16.
inline BFloat16 timesScale(int8_t twice, float scale) {
  const float product = 0.5F * static_cast<float>(twice) * scale;
  return {static_cast<uint16_t>(__builtin_bit_cast(uint32_t, product) >> 16)};
}

// Twice a number, times the power of a code of E8M0. The least power is subnormal, and stands for half of the
// next one.
inline BFloat16 timesPower(int8_t twice, uint8_t power) {
  const float number = static_cast<float>(twice) * (power == 0 ? 0.25F : 0.5F);
  const uint32_t bits = power == 0xff ? 0x7fc00000u : uint32_t{power == 0 ? uint8_t{1} : power} << 23;
  const float product = number * __builtin_bit_cast(float, bits);
  return {static_cast<uint16_t>(__builtin_bit_cast(uint32_t, product) >> 16)};
}

#if defined(__AVX2__)

// The numbers of all codes.
class NumbersOfCodes {
 public:
  // Those of code plus `least`, times scale plus zero.
  static NumbersOfCodes ofWhole(float least, float scale, float zero) {
    const __m256 first = _mm256_add_ps(_mm256_set1_ps(least), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
    const auto rounded = [&](__m256 whole) SLUICE_UNROLLED {
      return roundedBitsOrNan(
          _mm256_add_ps(_mm256_mul_ps(whole, _mm256_set1_ps(scale)), _mm256_set1_ps(zero)));
    };
    return NumbersOfCodes(packWords(rounded(first), rounded(_mm256_add_ps(first, _mm256_set1_ps(8)))));
  }
  // Those of E2M1 times a power.
  static NumbersOfCodes byPower(uint8_t power) {
    constexpr uint8_t kLeast = 2, kMost = 252;  // by which the exponents of 0.5 and 6 are normal
    if (power < kLeast || power > kMost) {
      BFloat16 numbers[16];
      for (int32_t code = 0; code < 16; ++code) numbers[code] = timesPower(kTwiceE2m1[code], power);
      return NumbersOfCodes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)));
    }
    const __m256i ones = _mm256_setr_epi16(0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0,
                                           -0x4100, -0x4080, -0x4040, -0x4000, -0x3fc0, -0x3f80, -0x3f40);
    const __m256i zero = _mm256_cmpeq_epi16(ones, _mm256_setzero_si256());
    const __m256i offset = _mm256_set1_epi16(static_cast<int16_t>((power - 127) * 128));
    return NumbersOfCodes(_mm256_add_epi16(ones, _mm256_andnot_si256(zero, offset)));
  }

  // to[j] = the number of code `first` + j.
  void lookUp(const Nibbles* codes, int32_t first, int32_t count, BFloat16* to) const {
    int32_t j = 0;
    if (first % 2 == 0)
      for (; j + 32 <= count; j += 32) lookUpWhole(codes + (first + j) / 2, to + j);
    if (j == count) return;
    BFloat16 numbers[16];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers), numbers_);
    for (; j < count; ++j) to[j] = numbers[codeAt(codes, first + j)];
  }

 private:
  explicit NumbersOfCodes(__m256i numbers) : numbers_(numbers) {
    const __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(numbers, _mm256_set1_epi16(0xff)),
                                              _mm256_srli_epi16(numbers, 8));
    lower_ = _mm256_permute4x64_epi64(bytes, 0x88);
    upper_ = _mm256_permute4x64_epi64(bytes, 0xdd);
  }

  SLUICE_UNROLLED void lookUpWhole(const Nibbles* codes, BFloat16* to) const {
    const __m128i half = _mm_set1_epi8(15), pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m128i even = _mm_and_si128(pairs, half), odd = _mm_and_si128(_mm_srli_epi16(pairs, 4), half);
    const __m256i code = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    const __m256i low = _mm256_shuffle_epi8(lower_, code), high = _mm256_shuffle_epi8(upper_, code);
    // each has eight of the first sixteen numbers, and eight of the last
    const __m256i some = _mm256_unpacklo_epi8(low, high), others = _mm256_unpackhi_epi8(low, high);
    auto* const stored = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(stored, _mm256_permute2x128_si256(some, others, 0x20));
    _mm256_storeu_si256(stored + 1, _mm256_permute2x128_si256(some, others, 0x31));
  }

  __m256i numbers_;
  __m256i lower_, upper_;  // their bytes, in each half
};

// Stores the numbers of sixteen codes, which have half of these scales.
SLUICE_UNROLLED inline void storeSixteen(const Nibbles* codes, const __m256 (&halves)[2], BFloat16* to) {
  const __m128i twice = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1));
  const __m128i numbers = _mm_shuffle_epi8(twice, lowerCodes(eightBytes(codes)));
  const auto eight = [](__m128i number, __m256 half) SLUICE_UNROLLED {
    const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(number)), half);
    return _mm256_srli_epi32(_mm256_castps_si256(product), 16);
  };
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      packWords(eight(numbers, halves[0]), eight(_mm_srli_si128(numbers, 8), halves[1])));
}

// Stores the first of the numbers whose scales are powers, in whole sixteens. Returns how many.
inline int32_t decodeSixteens(const Nibbles* codes, int32_t count, const uint8_t* powers, BFloat16* to) {
  int32_t j = 0;
  for (; j + 16 <= count; j += 16) {
    const __m128i power = _mm_loadu_si128(reinterpret_cast<const __m128i*>(powers + j));
    const __m128i lessTwo = _mm_sub_epi8(power, _mm_set1_epi8(2));
    const __m128i isNormal = _mm_cmpeq_epi8(_mm_min_epu8(lessTwo, _mm_set1_epi8(-4)), lessTwo);
    if (_mm_movemask_epi8(isNormal) != 0xffff) {
      for (int32_t i = j; i < j + 16; ++i) to[i] = timesPower(kTwiceE2m1[codeAt(codes, i)], powers[i]);
      continue;
    }
    const auto halved = [](__m128i of) SLUICE_UNROLLED {
      const __m256i exponents = _mm256_sub_epi32(_mm256_cvtepu8_epi32(of), _mm256_set1_epi32(1));
      return _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23));
    };
    storeSixteen(codes + j / 2, {halved(power), halved(_mm_srli_si128(power, 8))}, to + j);
  }
  return j;
}

// The same, of numbers whose scale number j is half(j) * 2. `codes` begins with a whole byte.
template <class Half>
SLUICE_UNROLLED inline int32_t decodeSixteensBy(const Nibbles* codes, int32_t count, const Half& half,
                                                BFloat16* to) {
  int32_t j = 0;
  for (; j + 16 <= count; j += 16) {
    alignas(32) float halves[16];
    for (int32_t i = 0; i < 16; ++i) halves[i] = half(j + i);
    storeSixteen(codes + j / 2, {_mm256_load_ps(halves), _mm256_load_ps(halves + 8)}, to + j);
  }
  return j;
}

#else

class NumbersOfCodes {
 public:
  static NumbersOfCodes ofWhole(float least, float scale, float zero) {
    NumbersOfCodes made;
    for (int32_t code = 0; code < 16; ++code)
      made.numbers_[code].bits = roundToBf16((static_cast<float>(code) + least) * scale + zero);
    return made;
  }
  static NumbersOfCodes byPower(uint8_t power) {
    NumbersOfCodes made;
    for (int32_t code = 0; code < 16; ++code) made.numbers_[code] = timesPower(kTwiceE2m1[code], power);
    return made;
  }
  void lookUp(const Nibbles* codes, int32_t first, int32_t count, BFloat16* to) const {
    for (int32_t j = 0; j < count; ++j) to[j] = numbers_[codeAt(codes, first + j)];
  }

 private:
  BFloat16 numbers_[16];
};

inline int32_t decodeSixteens(const Nibbles*, int32_t, const uint8_t*, BFloat16*) { return 0; }
template <class Half>
int32_t decodeSixteensBy(const Nibbles*, int32_t, const Half&, BFloat16*) {
  return 0;
}

#endif

// Decodes codes of E2M1, each with its own scale, which is a code of that type.
inline void decodeFloats(const Nibbles* codes, int32_t count, DType type, const uint8_t* scales,
                         BFloat16* to) {
  if (type == DType::kF8_E8M0) {
    for (int32_t j = decodeSixteens(codes, count, scales, to); j < count; ++j)
      to[j] = timesPower(kTwiceE2m1[codeAt(codes, j)], scales[j]);
    return;
  }
  int32_t j = decodeSixteensBy(codes, count, [&](int32_t i) { return 0.5F * numberOf(scales[i]); }, to);
  for (; j < count; ++j) to[j] = timesScale(kTwiceE2m1[codeAt(codes, j)], numberOf(scales[j]));
}

// Decodes codes `first` + j of E2M1, which share such a scale.
inline void decodeSharedFloats(const Nibbles* codes, int32_t first, int32_t count, DType type, uint8_t scale,
                               BFloat16* to) {
  if (type == DType::kF8_E8M0) return NumbersOfCodes::byPower(scale).lookUp(codes, first, count, to);
  // groups are short: to compute the numbers of all codes would take as long as those of a group
  const float number = numberOf(scale), half = 0.5F * number;
  int32_t j = 0;
  if (first % 2 == 0) j = decodeSixteensBy(codes + first / 2, count, [half](int32_t) { return half; }, to);
  for (; j < count; ++j) to[j] = timesScale(kTwiceE2m1[codeAt(codes, first + j)], number);
}

}  // namespace
}  // namespace sluice::ops
