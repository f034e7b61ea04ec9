// The AVX2 unit of codes, by vpmaddwd, which multiplies pairs of 16 bits and adds both products. A packed
// panel has bytes, which a load widens. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/panels_avx2.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct DotCodesAvx2 {
  using Element = uint16_t;  // a code of a, widened
  using PanelElement = int8_t;
  using Sum = int32_t;
  using Vector = __m256i;
  using Column = __m256i;
  static constexpr int32_t kKc = 512;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 2;
  static constexpr bool kShiftsCodes = false;

  template <int kVectors>
  SLUICE_UNROLLED static void loadColumns(const PanelElement* b, Column (&column)[kVectors]) {
    unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
      const auto* const pairs = reinterpret_cast<const __m128i*>(b + v.value * 8 * kKUnit);
      column[v.value] = _mm256_cvtepi8_epi16(_mm_loadu_si128(pairs));
    });
  }
  SLUICE_UNROLLED static __m256i broadcast(const void* a) {
    int32_t word;
    __builtin_memcpy(&word, a, 4);
    return _mm256_set1_epi32(word);
  }
  SLUICE_UNROLLED static void add(Vector& sum, Column column, __m256i row) {
    add32(sum, _mm256_madd_epi16(column, row));
  }
};

using UnitAvx2Codes = PanelsAvx2<DotCodesAvx2, 6, 2>;

}  // namespace
}  // namespace sluice::ops
