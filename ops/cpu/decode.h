// Codes to bf16 numbers: code times scale, plus the zero of its block if there are zeros, rounded once at the
// end. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/nibbles.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// The place of an element in its matrix as that lies.
struct Place {
  int32_t row, column;
};

inline void decodeRun(const int8_t* __restrict codes, int32_t count, float scale, float zero,
                      BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(static_cast<float>(codes[j]) * scale + zero);
}

inline void decodeEach(const int8_t* __restrict codes, int32_t count, const float* __restrict scales,
                       BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(static_cast<float>(codes[j]) * scales[j]);
}

inline void decodeEach(const int8_t* __restrict codes, int32_t count, const float* __restrict scales,
                       const float* __restrict zeros, BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j)
    to[j].bits = roundToBf16(static_cast<float>(codes[j]) * scales[j] + zeros[j]);
}

// A row of codes as bytes; `expanded` has room for it.
inline const int8_t* asBytes(const int8_t* codes, int32_t, bool, int8_t*) { return codes; }
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
    const int8_t* const bytes = asBytes(numberAt(codes, i * ld), columns, scales.zero != nullptr, expanded);
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
