// Packing for the units that multiply four codes at once (AVX-512 VNNI and AMX).
//
// A packed: [rows][kAStride], the codes of the sum in order; if Unit::kShiftsCodes, the sum of the codes of
// the block, an int32, from kKc on. B packed: [k / 4][kNr] of four codes; if Unit::kShiftsCodes, plus 128. A
// is padded with zeros to a multiple of Unit::kKUnit elements of the sum, so the pads of b do not count.
// Nothing is prefetched: products of codes have no path for few rows, and the units prefetch in all others.
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/shifted_codes.h"
#include "ops/cpu/square.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackCodes {
  using Element = int8_t;

  static void copyRows(const int8_t* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i, src += ld, dst += Unit::kAStride) {
      __builtin_memcpy(dst, src, static_cast<size_t>(k));
      for (int32_t j = k; j < padded(k); ++j) dst[j] = 0;
      if constexpr (Unit::kShiftsCodes) keepSum<Unit>(src, k, dst);
    }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const int8_t* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                          const int8_t*) {
    constexpr int32_t kNr = Unit::kNr;
    for (int32_t r = 0; r < padded(k); r += 4, dst += 4 * kNr) {
      int8_t edge[4][kNr] = {};
      const int8_t* row[4];
      for (int32_t h = 0; h < 4; ++h) {
        row[h] = src + (r + h) * ld;
        if (cols == kNr && r + h < k) continue;
        if (r + h < k) __builtin_memcpy(edge[h], row[h], static_cast<size_t>(cols));
        row[h] = edge[h];
      }
      interleave(row, dst);
    }
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const int8_t* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                             const int8_t*) {
    for (int32_t r = 0; r < k; r += kSquareBytes)
      for (int32_t j = 0; j < Unit::kNr; j += kSquare) {
        Element* const to = dst + int64_t{r} * Unit::kNr + 4 * j;
        const int8_t* const from = src + j * ld + r;
        if (cols - j >= kSquare && k - r >= kSquareBytes) {
          transposeSquare(from, ld, to, Unit::kNr * 4);
        } else {
          int8_t square[kSquare][kSquareBytes] = {};
          for (int32_t i = 0; i < kSquare && j + i < cols; ++i)
            __builtin_memcpy(square[i], from + i * ld, static_cast<size_t>(smaller(kSquareBytes, k - r)));
          transposeSquare(square, sizeof square[0], to, Unit::kNr * 4);
        }
        if constexpr (Unit::kShiftsCodes)
          for (int32_t q = 0; q < kSquare; ++q) shift(to + q * Unit::kNr * 4, kSquareBytes);
      }
  }

 private:
  static constexpr int32_t kSquareBytes = 4 * kSquare;

  static int32_t padded(int32_t k) { return static_cast<int32_t>(roundUp(k, Unit::kKUnit)); }

  static void shift(Element* codes, int32_t count) {
    for (int32_t i = 0; i < count; ++i) codes[i] = static_cast<Element>(codes[i] ^ kFlip<Unit>);
  }

  static void interleave(const int8_t* const (&row)[4], Element* __restrict dst) {
    for (int32_t j = 0; j < Unit::kNr; ++j)
      for (int32_t h = 0; h < 4; ++h) dst[4 * j + h] = static_cast<Element>(row[h][j] ^ kFlip<Unit>);
  }
};

}  // namespace
}  // namespace sluice::ops
