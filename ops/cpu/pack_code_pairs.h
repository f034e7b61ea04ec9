// Packing for a unit that multiplies pairs of codes as 16 bits (AVX2).
//
// A packed: [rows][kAStride], the codes of the sum in order, each widened to 16 bits. B packed: [k / 2][kNr]
// pairs of codes of 8 bits, which the unit widens as it loads them. Both are padded with zeros to a multiple
// of 2 elements of the sum; a panel of columns is written by squares of kSquareCodes elements. Nothing is
// prefetched: products of codes have no path for few rows. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/pairs_avx2.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackCodePairs {
  using Element = uint16_t;

  static void copyRows(const int8_t* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i, src += ld, dst += Unit::kAStride) {
      for (int32_t j = 0; j < k; ++j) dst[j] = static_cast<Element>(src[j]);
      if (k % 2 != 0) dst[k] = 0;
    }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const int8_t* src, int64_t ld, int32_t cols, int32_t k, int8_t* dst,
                          const int8_t*) {
    for (int32_t r = 0; r < k; r += 2, dst += 2 * kNr) {
      if (cols == kNr && r + 1 < k) {
        interleave(src + r * ld, src + (r + 1) * ld, dst);
        continue;
      }
      int8_t row[2][kNr] = {};
      for (int32_t h = 0; h < 2 && r + h < k; ++h)
        __builtin_memcpy(row[h], src + (r + h) * ld, static_cast<size_t>(cols));
      interleave(row[0], row[1], dst);
    }
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const int8_t* src, int64_t ld, int32_t cols, int32_t k, int8_t* dst,
                             const int8_t*) {
    for (int32_t r = 0; r < k; r += kSquareCodes)
      for (int32_t j = 0; j < kNr; j += kSquareColumns) {
        int8_t* const to = dst + r * kNr + 2 * j;
        const int8_t* const from = src + j * ld + r;
        if (cols - j >= kSquareColumns && k - r >= kSquareCodes) {
          transposeEight(from, ld, to, 2 * kNr);
          continue;
        }
        int8_t square[kSquareColumns][kSquareCodes] = {};
        for (int32_t i = 0; i < kSquareColumns && j + i < cols; ++i)
          __builtin_memcpy(square[i], from + i * ld, static_cast<size_t>(smaller(kSquareCodes, k - r)));
        transposeEight(square, kSquareCodes, to, 2 * kNr);
      }
  }

 private:
  static constexpr int32_t kNr = Unit::kNr;
  static constexpr int32_t kSquareColumns = 8;
  static constexpr int32_t kSquareCodes = 16;  // 8 pairs
  static_assert(Unit::kKUnit == 2 && kNr % kSquareColumns == 0);

  static void interleave(const int8_t* even, const int8_t* odd, int8_t* __restrict dst) {
    for (int32_t j = 0; j < kNr; ++j) {
      dst[2 * j] = even[j];
      dst[2 * j + 1] = odd[j];
    }
  }
};

}  // namespace
}  // namespace sluice::ops
