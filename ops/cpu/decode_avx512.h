// Decodes codes with AVX-512, 32 at a time, to the same bits as decode.h. The numbers of codes that share a
// scale are computed once and looked up; where each column has its own scale, it is loaded once for some
// rows. Subnormal numbers must be flushed (flush_subnormals.h). Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/lookup.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/scales.h"
#include "ops/cpu/unroll.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

constexpr int32_t kLineCodes = 32;

// Rows of kLineCodes codes.
struct CodeLines {
  const BlockScales& scales;
  int32_t row, column;  // where they begin in the matrix of scales
  int32_t rows;
  BFloat16* to;
  int64_t ldTo;

  // Whether the codes of a row share a scale.
  bool areWhole() const { return column % scales.columns + kLineCodes <= scales.columns; }
  // Stores numbers(i, at) for each row i, where `at` is the index of its first scale.
  template <class Numbers>
  SLUICE_UNROLLED void store(const Numbers& numbers) const {
    const int32_t end = rows, perBlock = scales.rows;
    const int64_t ldScales = scales.ld, step = ldTo;
    int32_t line = perBlock == 1 ? row : row / perBlock, left = (line + 1) * perBlock - row;
    int64_t at = line * ldScales + column / scales.columns;
    BFloat16* next = to;
    for (int32_t i = 0; i < end; ++i, next += step) {
      if (left == 0) at += ldScales, left = perBlock;
      --left;
      _mm512_storeu_si512(next, numbers(i, at));
    }
  }
};

SLUICE_UNROLLED inline __m512i roundedBits(__m512 lower, __m512 upper) {
  return (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
}

SLUICE_UNROLLED inline void widenLine(const int8_t* codes, __m512 (&numbers)[2]) {
  unroll<2>([&](auto h) SLUICE_UNROLLED {
    const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes) + h.value);
    numbers[h.value] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(some));
  });
}

// E4M3: a code whose exponent has three bits more is an F16, of 2^-8 times the number.
SLUICE_UNROLLED inline void widenLine(const uint8_t* codes, __m512 (&numbers)[2]) {
  const __m512i words = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(words, 7), _mm512_set1_epi16(-0x4001));
  const __mmask32 areNan = _mm512_cmpeq_epi16_mask(_mm512_slli_epi16(halves, 1), _mm512_set1_epi16(0x7f00));
  const __m512i nan = _mm512_or_si512(halves, _mm512_set1_epi16(0x7e00));
  const __m512i all = _mm512_mask_blend_epi16(areNan, halves, nan);
  const __m512 up = _mm512_set1_ps(256);
  numbers[0] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(all)), up);
  numbers[1] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1)), up);
}

// The same of the first two codes.
SLUICE_UNROLLED inline __m128 numbersOfE4m3(__m128i codes) {
  const __m128i words = _mm_cvtepi8_epi16(codes);
  const __m128i halves = _mm_and_si128(_mm_slli_epi16(words, 7), _mm_set1_epi16(-0x4001));
  const __mmask8 areNan = _mm_cmpeq_epi16_mask(_mm_slli_epi16(halves, 1), _mm_set1_epi16(0x7f00));
  const __m128i nan = _mm_or_si128(halves, _mm_set1_epi16(0x7e00));
  return _mm_mul_ps(_mm_cvtph_ps(_mm_mask_blend_epi16(areNan, halves, nan)), _mm_set1_ps(256));
}

// Decodes lines of whole numbers of 8 bits or of E4M3. Returns whether it can.
template <class Code>
SLUICE_NOT_INLINED bool decodeLines(const Code* codes, int64_t ld, const CodeLines& lines) {
  if (!lines.areWhole()) return false;
  const auto* const scales = static_cast<const float*>(lines.scales.data);
  lines.store([&](int32_t i, int64_t at) SLUICE_UNROLLED {
    const __m512 scale = _mm512_set1_ps(scales[at]);
    __m512 numbers[2];
    widenLine(codes + i * ld, numbers);
    return roundedBits(_mm512_mul_ps(numbers[0], scale), _mm512_mul_ps(numbers[1], scale));
  });
  return true;
}

// The places of 32 codes among their numbers: words of four bits.
SLUICE_UNROLLED inline __m512i placesAt(const Nibbles* codes) {
  const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  constexpr int kOrAnd = (0xf0 | 0xcc) & 0xaa;
  return _mm512_ternarylogic_epi32(pairs, _mm512_slli_epi32(pairs, 12), _mm512_set1_epi32(0x000f000f),
                                   kOrAnd);
}
SLUICE_UNROLLED inline __m512i numbersAt(const Nibbles* codes, __m512 ofCodes) {
  const __m512i numbers = _mm512_castsi256_si512((__m256i)_mm512_cvtneps_pbh(ofCodes));
  return _mm512_permutexvar_epi16(placesAt(codes), numbers);
}

// The powers by which the numbers of E2M1 are normal.
constexpr uint8_t kLeastNormal = 2, kMostNormal = 252;

SLUICE_UNROLLED inline __m512 floatsOfE2m1() {
  return _mm512_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6);
}

// Decodes lines of whole numbers; scaleAt(at) is a scale.
template <class ScaleAt>
SLUICE_NOT_INLINED void decodeWhole(const Nibbles* codes, int64_t ld, const CodeLines& lines,
                                    const ScaleAt& scaleAt) {
  const BlockScales scales = lines.scales;
  const bool hasZeros = scales.zero != nullptr;
  const __m512 first = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 whole = hasZeros ? first : _mm512_sub_ps(first, _mm512_set1_ps(kHalf));
  lines.store([&](int32_t i, int64_t at) SLUICE_UNROLLED {
    const float scale = scaleAt(at);
    __m512 numbers = _mm512_mul_ps(whole, _mm512_set1_ps(scale));
    if (hasZeros) numbers = _mm512_add_ps(numbers, _mm512_set1_ps(zeroAt(scales, at, scale)));
    return numbersAt(numberAt(codes, i * ld), numbers);
  });
}

SLUICE_NOT_INLINED inline void decodePowers(const Nibbles* codes, int64_t ld, const CodeLines& lines) {
  const auto* const powers = static_cast<const uint8_t*>(lines.scales.data);
  lines.store([&](int32_t i, int64_t at) SLUICE_UNROLLED {
    const Nibbles* const line = numberAt(codes, i * ld);
    const uint8_t power = powers[at];
    if (power >= kLeastNormal && power <= kMostNormal)
      return numbersAt(line,
                       _mm512_mul_ps(floatsOfE2m1(), _mm512_castsi512_ps(_mm512_set1_epi32(power << 23))));
    BFloat16 numbers[kLineCodes];
    NumbersOfCodes::byPower(power).lookUp(line, 0, kLineCodes, numbers);
    return _mm512_loadu_si512(numbers);
  });
}

// Each row has two scales of E4M3.
SLUICE_NOT_INLINED inline void decodeHalfLines(const Nibbles* codes, int64_t ld, const CodeLines& lines) {
  const auto* const scales = static_cast<const uint8_t*>(lines.scales.data);
  const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  lines.store([&](int32_t i, int64_t at) SLUICE_UNROLLED {
    uint16_t both;
    __builtin_memcpy(&both, scales + at, sizeof both);
    const __m128 scale = numbersOfE4m3(_mm_cvtsi32_si128(both));
    const __m512 first = _mm512_mul_ps(floatsOfE2m1(), _mm512_broadcastss_ps(scale));
    const __m512 other = _mm512_mul_ps(floatsOfE2m1(), _mm512_broadcastss_ps(_mm_movehdup_ps(scale)));
    return _mm512_permutexvar_epi16(_mm512_or_si512(placesAt(numberAt(codes, i * ld)), second),
                                    roundedBits(first, other));
  });
}

inline bool decodeLines(const Nibbles* codes, int64_t ld, const CodeLines& lines) {
  const BlockScales& scales = lines.scales;
  if (scales.type == DType::kF8_E4M3) {
    if (scales.columns != kLineCodes / 2 || lines.column % scales.columns != 0) return false;
    decodeHalfLines(codes, ld, lines);
    return true;
  }
  if (!lines.areWhole()) return false;
  const void* const data = scales.data;
  if (scales.type == DType::kF8_E8M0)
    decodePowers(codes, ld, lines);
  else if (scales.type == DType::kF16)
    decodeWhole(codes, ld, lines,
                [=](int64_t at) { return _cvtsh_ss(static_cast<const uint16_t*>(data)[at]); });
  else if (scales.type == DType::kBF16)
    decodeWhole(codes, ld, lines,
                [=](int64_t at) { return widenBf16(static_cast<const uint16_t*>(data)[at]); });
  else
    decodeWhole(codes, ld, lines, [=](int64_t at) { return static_cast<const float*>(data)[at]; });
  return true;
}

// Scales of 32 columns, from number `at` on, and what is added to the products with them. Returns false where
// a power is none of a normal number.
SLUICE_NOT_INLINED inline bool widenScales(const BlockScales& scales, int64_t at, __m512 (&by)[2],
                                           __m512 (&plus)[2]) {
  const auto* const bytes = static_cast<const uint8_t*>(scales.data) + at;
  const auto* const words = static_cast<const uint16_t*>(scales.data) + at;
  const auto* const floats = static_cast<const float*>(scales.data) + at;
  if (scales.type == DType::kF8_E4M3) widenLine(bytes, by);
  for (int32_t h = 0; h < 2; ++h) {
    const auto* const zero = scales.zero;
    plus[h] = _mm512_setzero_ps();
    if (scales.type == DType::kF8_E8M0) {
      const __m512i powers =
          _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + h));
      const __m512i above = _mm512_sub_epi32(powers, _mm512_set1_epi32(kLeastNormal));
      if (_mm512_cmpgt_epu32_mask(above, _mm512_set1_epi32(kMostNormal - kLeastNormal)) != 0) return false;
      by[h] = _mm512_castsi512_ps(_mm512_slli_epi32(powers, 23));
    } else if (scales.type == DType::kF32) {
      by[h] = _mm512_loadu_ps(floats + 16 * h);
      if (zero != nullptr) plus[h] = _mm512_loadu_ps(static_cast<const float*>(zero) + at + 16 * h);
    } else if (scales.type != DType::kF8_E4M3) {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words) + h);
      by[h] = scales.type == DType::kF16
                  ? _mm512_cvtph_ps(half)
                  : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
      if (zero == nullptr) continue;
      const __m128i counted =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const int8_t*>(zero) + at) + h);
      plus[h] = _mm512_mul_ps(
          _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), _mm512_cvtepi8_epi32(counted))), by[h]);
    }
  }
  return true;
}

// Calls run(codes, rows, by, plus, to) for runs of rows along which each of the 32 columns has one scale.
template <class Code, class Run>
SLUICE_UNROLLED inline bool eachRun(const Code* codes, int64_t ld, const CodeLines& lines, const Run& run) {
  const BlockScales& scales = lines.scales;
  for (int32_t i = 0; i < lines.rows;) {
    const int32_t block = (lines.row + i) / scales.rows;
    const int32_t end = smaller(lines.rows, (block + 1) * scales.rows - lines.row);
    __m512 by[2], plus[2];
    if (!widenScales(scales, block * scales.ld + lines.column, by, plus)) return false;
    run(numberAt(codes, i * ld), end - i, by, plus, lines.to + i * lines.ldTo);
    i = end;
  }
  return true;
}

// Decodes lines in which each column has its own scale. Returns whether it can.
template <class Code>
SLUICE_NOT_INLINED bool decodeColumns(const Code* codes, int64_t ld, const CodeLines& lines) {
  return eachRun(
      codes, ld, lines,
      [&](const Code* from, int32_t rows, const auto& by, const auto&, BFloat16* to) SLUICE_UNROLLED {
        for (int32_t i = 0; i < rows; ++i, from += ld, to += lines.ldTo) {
          __m512 numbers[2];
          widenLine(from, numbers);
          _mm512_storeu_si512(
              to, roundedBits(_mm512_mul_ps(numbers[0], by[0]), _mm512_mul_ps(numbers[1], by[1])));
        }
      });
}

// A lookup gives the numbers of two codes at once, as they are without scales, which bf16 holds.
SLUICE_NOT_INLINED inline bool decodeColumns(const Nibbles* codes, int64_t ld, const CodeLines& lines) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i even = _mm512_add_epi32(lanes, lanes), odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512i inTurn =
      _mm512_or_si512(lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
  const __m512 least = _mm512_set1_ps(lines.scales.zero != nullptr ? 0 : -kHalf);
  const __m512 ofCodes =
      areCodes(lines.scales) ? floatsOfE2m1() : _mm512_add_ps(_mm512_cvtepi32_ps(lanes), least);
  const __m512i numbers = _mm512_castsi256_si512((__m256i)_mm512_cvtneps_pbh(ofCodes));
  return eachRun(
      codes, ld, lines,
      [&](const Nibbles* from, int32_t rows, const auto& by, const auto& plus, BFloat16* to) SLUICE_UNROLLED {
        const __m512 byEven = _mm512_permutex2var_ps(by[0], even, by[1]);
        const __m512 byOdd = _mm512_permutex2var_ps(by[0], odd, by[1]);
        const __m512 plusEven = _mm512_permutex2var_ps(plus[0], even, plus[1]);
        const __m512 plusOdd = _mm512_permutex2var_ps(plus[0], odd, plus[1]);
        for (int32_t i = 0; i < rows; ++i, to += lines.ldTo) {
          const __m512i pairs = _mm512_permutexvar_epi16(placesAt(numberAt(from, i * ld)), numbers);
          const __m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
          const __m512 second = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
          const __m512i rounded = roundedBits(_mm512_add_ps(_mm512_mul_ps(first, byEven), plusEven),
                                              _mm512_add_ps(_mm512_mul_ps(second, byOdd), plusOdd));
          _mm512_storeu_si512(to, _mm512_permutexvar_epi16(inTurn, rounded));
        }
      });
}

// Decodes rows from an element of the matrix of scales on. Returns whether it can.
template <class B>
bool decodeWide(const B* codes, int64_t ld, const BlockScales& scales, int32_t row, int32_t column,
                int32_t rows, int32_t columns, BFloat16* to, int64_t ldTo) {
  if (columns % kLineCodes != 0) return false;
  for (int32_t j = 0; j < columns; j += kLineCodes) {
    const CodeLines lines = {scales, row, column + j, rows, to + j, ldTo};
    const B* const from = numberAt(codes, j);
    if (!(scales.columns == 1 ? decodeColumns(from, ld, lines) : decodeLines(from, ld, lines))) return false;
  }
  return true;
}

}  // namespace
}  // namespace sluice::ops
