// Packing for the units that multiply fp32 (portable and AVX2): bf16 and codes are widened here, once per
// block.
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
  template <class T>
  static void copyRows(const T* src, int64_t ld, int32_t rows, int32_t k, Element* dst) {
    for (int32_t i = 0; i < rows; ++i) widen(src + i * ld, k, dst + int64_t{i} * Unit::kAStride);
  }

  // dst[i][r] = src[r][i] * scale[r] for i < rows, r < k; in squares, so that whole lines are written.
  static void transposeScaled(const BFloat16* src, int64_t ld, const float* scale, int32_t rows, int32_t k,
                              Element* dst) {
    for (int32_t r = 0; r < k; r += kSide)
      for (int32_t i0 = 0; i0 < rows; i0 += kSide) {
        const int32_t iEnd = smaller(i0 + kSide, rows);
        const int32_t rEnd = smaller(r + kSide, k);
        if (iEnd - i0 == kSide && rEnd - r == kSide) {
          const float* const scaleHere = scale == nullptr ? nullptr : scale + r;
          transposeWhole(src + r * ld + i0, ld, scaleHere, dst + int64_t{i0} * Unit::kAStride + r);
          continue;
        }
        for (int32_t i = i0; i < iEnd; ++i)
          for (int32_t s = r; s < rEnd; ++s) {
            const float x = widenBf16(src[s * ld + i].bits);
            dst[int64_t{i} * Unit::kAStride + s] = scale == nullptr ? x : x * scale[s];
          }
      }
  }

  // The panel of b [k, cols] with rows in memory.
  template <class T>
  static void panelOfRows(const T* src, int64_t ld, int32_t cols, int32_t k, Element* dst, const T* ahead) {
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
  template <class T>
  static void panelOfColumns(const T* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                             const T* ahead) {
    for (int32_t r = 0; r < k; r += kSide) {
      const int32_t rEnd = smaller(r + kSide, k);
      for (int32_t j = 0; ahead != nullptr && j < cols; ++j) fetchSoon(ahead + j * ld + r);
      for (int32_t j = 0; j < Unit::kNr; ++j)
        for (int32_t s = r; s < rEnd; ++s)
          dst[int64_t{s} * Unit::kNr + j] = j < cols ? widened(src[j * ld + s]) : 0.0f;
    }
  }

 private:
  static constexpr int32_t kSide = 16;

  typedef float Vector __attribute__((vector_size(16)));
  typedef uint32_t Words __attribute__((vector_size(16)));
  typedef uint16_t Halves __attribute__((vector_size(8)));

  // A square of kSide x kSide elements, by squares of 4 x 4 in registers.
  static void transposeWhole(const BFloat16* src, int64_t ld, const float* scale, Element* dst) {
    for (int32_t i = 0; i < kSide; i += 4)
      for (int32_t s = 0; s < kSide; s += 4) {
        Vector x[4];
        for (int32_t q = 0; q < 4; ++q) {
          Halves bits;
          __builtin_memcpy(&bits, src + (s + q) * ld + i, sizeof bits);
          x[q] = (Vector)(__builtin_convertvector(bits, Words) << 16);
          if (scale != nullptr) x[q] *= scale[s + q];
        }
        const Vector low01 = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
        const Vector high01 = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
        const Vector low23 = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
        const Vector high23 = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
        const Vector y[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                             __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                             __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                             __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
        for (int32_t q = 0; q < 4; ++q)
          __builtin_memcpy(dst + int64_t{i + q} * Unit::kAStride + s, &y[q], sizeof y[q]);
      }
  }

  static float widened(BFloat16 x) { return widenBf16(x.bits); }
  static float widened(int8_t code) { return code; }
  template <class T>
  static void widen(const T* __restrict src, int32_t count, float* __restrict dst) {
    for (int32_t j = 0; j < count; ++j) dst[j] = widened(src[j]);
  }
};

}  // namespace
}  // namespace sluice::ops
