// The AVX2 unit of codes, by vpmaddwd, which multiplies pairs of 16 bits and adds both products. A packed
// panel has bytes, which a load widens. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/nibbles_avx2.h"
#include "ops/cpu/panels_avx2.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

template <int32_t kBlock, int32_t kStride>
struct DotCodesAvx2 {
  using Element = uint16_t;  // a code of a, widened
  using PanelElement = int8_t;
  using Sum = int32_t;
  typedef int32_t Vector __attribute__((vector_size(32)));
  using Column = __m256i;
  static constexpr int32_t kKc = kBlock;
  static constexpr int32_t kAStride = kStride;
  static constexpr int32_t kSumsAt = kKc;
  static constexpr int32_t kKUnit = 2;

  template <int kVectors>
  SLUICE_UNROLLED static void loadColumns(const PanelElement* b, Column (&column)[kVectors]) {
    unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
      const auto* const pairs = reinterpret_cast<const __m128i*>(b + v.value * 8 * kKUnit);
      column[v.value] = _mm256_cvtepi8_epi16(_mm_loadu_si128(pairs));
    });
  }
  SLUICE_UNROLLED static __m256i broadcast(const Element* a) {
    int32_t word;
    __builtin_memcpy(&word, a, 4);
    return _mm256_set1_epi32(word);
  }
  SLUICE_UNROLLED static void add(Vector& sum, Column column, __m256i row) {
    sum += (Vector)_mm256_madd_epi16(column, row);
  }
};

using UnitAvx2Codes = PanelsAvx2<DotCodesAvx2<512, 512>, 6, 2>;

struct UnitAvx2Groups
    : PanelsAvx2<DotCodesAvx2<kMostStretch, kMostStretch + 32>, 6, 2> {  // room for sums of a row
  using Packed = NibblesAvx2<kAStride>;
};

}  // namespace
}  // namespace sluice::ops
