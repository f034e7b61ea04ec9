// The AVX-512 unit of codes, by vpdpbusd (shifted_codes.h). Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/panels_avx512.h"
#include "ops/cpu/shifted_codes.h"

namespace sluice::ops {
namespace {

// Codes of b that are not negative need no shift.
template <int32_t kBlock, bool kShifts, bool kPairs = false>
struct DotCodesAvx512 {
  using Element = int8_t;
  using Sum = int32_t;
  typedef int32_t Vector __attribute__((vector_size(64)));
  static constexpr int32_t kKc = kBlock;
  static constexpr int32_t kAStride = kKc + 64;  // room for sums of the row; no power of two
  static constexpr int32_t kSumsAt = kKc;
  static constexpr int32_t kKUnit = 4;
  static constexpr bool kShiftsCodes = kShifts;
  static constexpr int32_t kFetchWords = kShifts ? 8 : 2;
  static constexpr bool kHalves = kPairs;

  static Vector start(const Element* a, int32_t words, Vector before) {
    if constexpr (!kShifts) return before;
    return before - excessOfRow<DotCodesAvx512>(a, words);
  }
  static Vector add(Vector sum, __m512i column, __m512i row) {
    return (Vector)_mm512_dpbusd_epi32((__m512i)sum, column, row);
  }
};

using UnitAvx512Codes = PanelsAvx512<DotCodesAvx512<1024, true>>;

struct UnitAvx512Groups : PanelsAvx512<DotCodesAvx512<kMaxStretch, false>> {
  // The same of panels in the form that lasts (groups.h).
  using Packed = PanelsAvx512<DotCodesAvx512<kMaxStretch, false, true>>;
};

}  // namespace
}  // namespace sluice::ops
