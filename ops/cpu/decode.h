// Codes to bf16 numbers: code times scale, rounded once. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"
#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

// The place of an element in its matrix as that lies.
struct Place {
  int32_t row, column;
};

inline void decodeRun(const int8_t* __restrict codes, int32_t count, float scale, BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(static_cast<float>(codes[j]) * scale);
}

inline void decodeEach(const int8_t* __restrict codes, int32_t count, const float* __restrict scales,
                       BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(static_cast<float>(codes[j]) * scales[j]);
}

// to[i, j] = the number at `first` + (i, j) of the operand, whose codes from there on are `codes`.
inline void decode(const int8_t* codes, int64_t ld, const BlockScales& scales, Place first, int32_t rows,
                   int32_t columns, BFloat16* to, int64_t ldTo) {
  first.row += scales.firstRow;
  first.column += scales.firstColumn;
  for (int32_t i = 0; i < rows; ++i, codes += ld, to += ldTo) {
    const float* const ofRow = scales.data + (first.row + i) / scales.rows * scales.ld;
    if (scales.columns == 1) {
      decodeEach(codes, columns, ofRow + first.column, to);
      continue;
    }
    for (int32_t j = 0; j < columns;) {
      const int32_t block = (first.column + j) / scales.columns;
      const int32_t count = smaller((block + 1) * scales.columns - first.column, columns) - j;
      decodeRun(codes + j, count, ofRow[block], to + j);
      j += count;
    }
  }
}

}  // namespace
}  // namespace sluice::ops
