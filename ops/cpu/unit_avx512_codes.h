// The AVX-512 unit of codes, by vpdpbusd (shifted_codes.h). Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/panels_avx512.h"
#include "ops/cpu/shifted_codes.h"

namespace sluice::ops {
namespace {

struct DotCodesAvx512 {
  using Element = int8_t;
  using Sum = int32_t;
  typedef int32_t Vector __attribute__((vector_size(64)));
  static constexpr int32_t kKc = 1024;
  static constexpr int32_t kAStride = kKc + 64;  // room for sums of the row; no power of two
  static constexpr int32_t kKUnit = 4;
  static constexpr bool kShiftsCodes = true;
  static constexpr int32_t kFetchWords = 8;

  static Vector start(const Element* a, int32_t words, Vector before) {
    return before - excessOfRow<DotCodesAvx512>(a, words);
  }
  static Vector add(Vector sum, __m512i column, __m512i row) {
    return (Vector)_mm512_dpbusd_epi32((__m512i)sum, column, row);
  }
};

using UnitAvx512Codes = PanelsAvx512<DotCodesAvx512>;

}  // namespace
}  // namespace sluice::ops
