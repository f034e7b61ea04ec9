// Codes to bf16 numbers: code times scale, plus the zero of its block if there are zeros, rounded once at the
// end. Codes are whole numbers (int8_t, Nibbles) or E4M3 (uint8_t). Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/nibbles.h"
#include "runtime/abi/kernels.h"
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "ops/cpu/decode_avx2.h"
#endif

namespace sluice::ops {
namespace {

// The place of an element in its matrix as that lies.
struct Place {
  int32_t row, column;
};

inline float numberOf(int8_t code) { return static_cast<float>(code); }
// As fromE4m3(), in a form that compilers vectorise.
inline float numberOf(uint8_t code) {
  const int32_t magnitude = code & 0x7f;
  const int32_t normal = (magnitude << 20) + (120 << 23);
  const auto subnormal = __builtin_bit_cast(int32_t, static_cast<float>(magnitude) * 0x1p-9F);
  const int32_t isSubnormal = -static_cast<int32_t>(magnitude < 8);
  const int32_t nan = -static_cast<int32_t>(magnitude == 0x7f) & 0x7fc00000;
  return __builtin_bit_cast(float,
                            (subnormal & isSubnormal) | (normal & ~isSubnormal) | nan | (code & 0x80) << 24);
}

template <class Code>
void decodeRun(const Code* __restrict codes, int32_t count, float scale, float zero,
               BFloat16* __restrict to) {
  int32_t j = 0;
#if defined(__AVX2__) && !defined(__AVX512F__)
  if (scale == scale && zero == zero) j = decodeSixteens(codes, count, scale, zero, to);
#endif
  for (; j < count; ++j) to[j].bits = roundToBf16(numberOf(codes[j]) * scale + zero);
}

template <class Code>
void decodeEach(const Code* __restrict codes, int32_t count, const float* __restrict scales,
                BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(numberOf(codes[j]) * scales[j]);
}

template <class Code>
void decodeEach(const Code* __restrict codes, int32_t count, const float* __restrict scales,
                const float* __restrict zeros, BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(numberOf(codes[j]) * scales[j] + zeros[j]);
}

// A row of codes as bytes; `expanded` has room for it.
template <class Code>
const Code* asBytes(const Code* codes, int32_t, bool, int8_t*) {
  return codes;
}
inline const int8_t* asBytes(const Nibbles* codes, int32_t count, bool hasZeros, int8_t* expanded) {
  expand(codes, count, hasZeros ? 0 : kHalf, expanded);
  return expanded;
}

// to[i, j] = the number at `first` + (i, j) of the operand, whose codes from there on are `codes`; at most
// kMostDecoded columns.
constexpr int32_t kMostDecoded = 64;
template <class B>
void decode(const B* codes, int64_t ld, const BlockScales& scales, Place first, int32_t rows, int32_t columns,
            BFloat16* to, int64_t ldTo) {
  int8_t expanded[kMostDecoded];
  first.row += scales.firstRow;
  first.column += scales.firstColumn;
  for (int32_t i = 0; i < rows; ++i, to += ldTo) {
    const auto* const bytes = asBytes(numberAt(codes, i * ld), columns, scales.zero != nullptr, expanded);
    const int64_t line = (first.row + i) / scales.rows * scales.ld;
    const float* const ofRow = scales.data + line;
    const float* const zeroOfRow = scales.zero == nullptr ? nullptr : scales.zero + line;
    if (scales.columns == 1) {
      if (zeroOfRow == nullptr)
        decodeEach(bytes, columns, ofRow + first.column, to);
      else
        decodeEach(bytes, columns, ofRow + first.column, zeroOfRow + first.column, to);
      continue;
    }
    for (int32_t j = 0; j < columns;) {
      const int32_t block = (first.column + j) / scales.columns;
      const int32_t count = smaller((block + 1) * scales.columns - first.column, columns) - j;
      decodeRun(bytes + j, count, ofRow[block], zeroOfRow == nullptr ? 0 : zeroOfRow[block], to + j);
      j += count;
    }
  }
}

}  // namespace
}  // namespace sluice::ops
