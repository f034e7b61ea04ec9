// Packing for the units that multiply fp32 (portable and AVX2): bf16 is widened here, once per block.
//
// A packed: [rows][kAStride] fp32. B packed: [k][kNr] fp32, columns beyond the matrix zero. Internal linkage:
// see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

template <class Unit>
struct PackF32 {
  using Element = float;

  // dst[i][0, k) = src[i][0, k).
  static void copyRows(const BFloat16* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i) widen(src + i * ld, k, dst + int64_t{i} * Unit::kAStride);
  }

  // dst[i][r] = src[r][i] * scale[r] for i < rows, r < k; in squares, so that a line written is written
  // whole.
  static void transposeScaled(const BFloat16* src, int64_t ld, const float* scale, int32_t rows, int32_t k,
                              Element* dst) {
    for (int32_t r = 0; r < k; r += kSide)
      for (int32_t i0 = 0; i0 < rows; i0 += kSide) {
        const int32_t iEnd = smaller(i0 + kSide, rows);
        const int32_t rEnd = smaller(r + kSide, k);
        for (int32_t i = i0; i < iEnd; ++i)
          for (int32_t s = r; s < rEnd; ++s) {
            const float x = widenBf16(src[s * ld + i].bits);
            dst[int64_t{i} * Unit::kAStride + s] = scale == nullptr ? x : x * scale[s];
          }
      }
  }

  // The panel of b [k, cols] with rows in memory.
  static void panelOfRows(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                          const BFloat16* ahead) {
    for (int32_t r = 0; r < k; ++r, dst += Unit::kNr) {
      if (ahead != nullptr) fetchSoon(ahead + r * ld);
      if (cols == Unit::kNr) {
        widen(src + r * ld, Unit::kNr, dst);
        continue;
      }
      widen(src + r * ld, cols, dst);
      for (int32_t j = cols; j < Unit::kNr; ++j) dst[j] = 0;
    }
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const BFloat16* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                             const BFloat16* ahead) {
    for (int32_t r = 0; r < k; r += kSide) {
      const int32_t rEnd = smaller(r + kSide, k);
      for (int32_t j = 0; ahead != nullptr && j < cols; ++j) fetchSoon(ahead + j * ld + r);
      for (int32_t j = 0; j < Unit::kNr; ++j)
        for (int32_t s = r; s < rEnd; ++s)
          dst[int64_t{s} * Unit::kNr + j] = j < cols ? widenBf16(src[j * ld + s].bits) : 0.0f;
    }
  }

 private:
  static constexpr int32_t kSide = 16;

  static void widen(const BFloat16* __restrict src, int32_t count, float* __restrict dst) {
    for (int32_t j = 0; j < count; ++j) dst[j] = widenBf16(src[j].bits);
  }
};

}  // namespace
}  // namespace sluice::ops
