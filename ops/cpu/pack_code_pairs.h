// Packing for a unit that multiplies pairs of codes of 16 bits (AVX2): that of PackBf16, of widened codes.
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/pack_parts.h"

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
  static void panelOfRows(const int8_t* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                          const int8_t* ahead) {
    pack(false, src, ld, cols, k, dst, ahead);
  }

  // The panel of b with columns in memory: src is [cols, k].
  static void panelOfColumns(const int8_t* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                             const int8_t* ahead) {
    pack(true, src, ld, cols, k, dst, ahead);
  }

 private:
  static void pack(bool transposed, const int8_t* src, int64_t ld, int32_t cols, int32_t k, Element* dst,
                   const int8_t* ahead) {
    packParts<Unit, PackBf16<Unit>>(
        transposed, src, ld, cols, k, dst, ahead,
        [ld](const int8_t* codes, int32_t, int32_t rows, int32_t columns, BFloat16* to, int64_t ldTo) {
          for (int32_t i = 0; i < rows; ++i, codes += ld, to += ldTo)
            for (int32_t j = 0; j < columns; ++j) to[j].bits = static_cast<Element>(codes[j]);
        });
  }
};

}  // namespace
}  // namespace sluice::ops
