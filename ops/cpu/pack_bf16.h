// Packing for the units that multiply pairs of bf16 (AVX-512 BF16 and AMX).
//
// A packed: [rows][kAStride], the elements of the sum in order. B packed: [k / 2][kNr] pairs, the lower half
// of a pair being the element of even k. Both are padded with zeros to a multiple of Unit::kKUnit elements of
// the sum (a pad against an infinity must not give a NaN). Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/square.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackBf16 {
  using Element = uint16_t;

  static int32_t padded(int32_t k) { return static_cast<int32_t>(roundUp(k, Unit::kKUnit)); }

  // dst[i][0, k) = src[i][0, k).
  static void copyRows(const BFloat16* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i) {
      Element* const to = dst + int64_t{i} * Unit::kAStride;
      __builtin_memcpy(to, src + i * ld, static_cast<size_t>(k) * 2);
      for (int32_t j = k; j < padded(k); ++j) to[j] = 0;
    }
  }

  // dst[i][r] = src[r][i] * scale[r] for i < rows, r < k.
  static void transposeScaled(const BFloat16* src, int64_t ld, const float* scale, int32_t rows, int32_t k,
                              Element* dst) {
    alignas(64) uint32_t squares[2][kSquare][kSquare];
    constexpr int32_t kColumns = 2 * kSquare;  // a cache line, so that each is read once
    for (int32_t r = 0; r < k; r += 2 * kSquare) {
      const float* const scaleHere = scale == nullptr ? nullptr : scale + r;
      const int32_t length = smaller(2 * kSquare, k - r);
      for (int32_t i = 0; i < rows; i += kColumns) {
        const BFloat16* const from = src + r * ld + i;
        for (int32_t j = 0; j < length; ++j) fetchSoon(from + j * ld + 2 * kColumns);
        pairSquares(from, ld, scaleHere, smaller(kColumns, rows - i), length, squares);
        for (int32_t h = 0; h < 2 && i + h * kSquare < rows; ++h)
          transposeSquare(squares[h], sizeof squares[h][0],
                          dst + int64_t{i + h * kSquare} * Unit::kAStride + r, Unit::kAStride * 2);
      }
    }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                          const BFloat16* ahead) {
    constexpr int32_t kNr = Unit::kNr;
    for (int32_t r = 0; r < padded(k); r += 2, dst += 2 * kNr) {
      if (ahead != nullptr)
        for (int32_t j = 0; j < kNr; j += kLine) {
          fetchSoon(ahead + r * ld + j);
          fetchSoon(ahead + (r + 1) * ld + j);
        }
      if (cols == kNr && r + 1 < k) {
        interleave(src + r * ld, src + (r + 1) * ld, dst);
        continue;
      }
      BFloat16 row[2][kNr] = {};
      for (int32_t h = 0; h < 2 && r + h < k; ++h)
        __builtin_memcpy(row[h], src + (r + h) * ld, static_cast<size_t>(cols) * 2);
      interleave(row[0], row[1], dst);
    }
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                             const BFloat16* ahead) {
    constexpr int64_t kDstStride = Unit::kNr * 4;
    for (int32_t j = 0; j < Unit::kNr; j += kSquare)
      for (int32_t r = 0; r < k; r += 2 * kSquare) {
        Element* const to = dst + int64_t{r} * Unit::kNr + 2 * j;
        const BFloat16* const from = src + j * ld + r;
        if (ahead != nullptr)
          for (int32_t i = 0; i < kSquare; ++i) fetchSoon(ahead + (j + i) * ld + r);
        if (cols - j >= kSquare && k - r >= 2 * kSquare) {
          transposeSquare(from, ld * 2, to, kDstStride);
          continue;
        }
        uint16_t square[kSquare][2 * kSquare] = {};
        for (int32_t i = 0; i < kSquare && j + i < cols; ++i)
          __builtin_memcpy(square[i], from + i * ld, static_cast<size_t>(smaller(2 * kSquare, k - r)) * 2);
        transposeSquare(square, sizeof square[0], to, kDstStride);
      }
  }

 private:
  static constexpr int32_t kLine = 32;  // elements per cache line

  static void interleave(const BFloat16* even, const BFloat16* odd, Element* __restrict dst) {
    for (int32_t j = 0; j < Unit::kNr; ++j) {
      dst[2 * j] = even[j].bits;
      dst[2 * j + 1] = odd[j].bits;
    }
  }
};

}  // namespace
}  // namespace sluice::ops
