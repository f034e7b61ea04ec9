// The AVX-VNNI units of codes are the AVX2 ones by vpdpbusd, which adds the products of four bytes to 32 bits
// at once (shifted_codes.h). With SLUICE_AVXVNNI_EMULATED, instructions of AVX2 compute it exactly, so that
// the kernels are tested on machines without AVX-VNNI. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/groups_avx2.h"
#include "ops/cpu/panels_avx2.h"
#include "ops/cpu/shifted_codes.h"
#include "ops/cpu/unit_avx2_codes.h"
#include "ops/cpu/unroll.h"

#if defined(SLUICE_AVXVNNI_EMULATED)
#define SLUICE_AVXVNNI_NAMESPACE avxvnni_emulated
#else
#define SLUICE_AVXVNNI_NAMESPACE avxvnni
#endif

namespace sluice::ops {
namespace {

// Each word of sum += the products of its four bytes of column, which are unsigned, and of row, which are
// signed.
SLUICE_UNROLLED inline void addProducts(__m256i& sum, __m256i column, __m256i row) {
#if defined(SLUICE_AVXVNNI_EMULATED)
  const __m256i evenColumn = _mm256_and_si256(column, _mm256_set1_epi16(255));
  const __m256i evenRow = _mm256_srai_epi16(_mm256_slli_epi16(row, 8), 8);
  add32(sum, _mm256_madd_epi16(evenColumn, evenRow));
  add32(sum, _mm256_madd_epi16(_mm256_srli_epi16(column, 8), _mm256_srai_epi16(row, 8)));
#else
  sum = _mm256_dpbusd_avx_epi32(sum, column, row);
#endif
}

struct DotCodesAvxVnni : DotCodesAvx2 {
  using Element = int8_t;
  static constexpr int32_t kKc = 1024;
  static constexpr int32_t kAStride = kKc + 64;  // room for the sum of the row; no power of two
  static constexpr int32_t kKUnit = 4;
  static constexpr bool kShiftsCodes = true;

  template <int kVectors>
  SLUICE_UNROLLED static void loadColumns(const PanelElement* b, Column (&column)[kVectors]) {
    unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
      column[v.value] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b) + v.value);
    });
  }
  SLUICE_UNROLLED static void start(const Element* a, int32_t words, Vector& sum) {
    sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(excessOfRow<DotCodesAvxVnni>(a, words)));
  }
  SLUICE_UNROLLED static void add(Vector& sum, Column column, __m256i row) { addProducts(sum, column, row); }
};

// The BlockSums of groups_avx2.h.
struct GroupSumsAvxVnni {
  SLUICE_UNROLLED static void begin(__m256i& sum, __m256i column, __m256i row) {
    sum = _mm256_setzero_si256();
    addProducts(sum, column, row);
  }
  SLUICE_UNROLLED static void add(__m256i& sum, __m256i column, __m256i row) {
    addProducts(sum, column, row);
  }
  SLUICE_UNROLLED static __m256i words(__m256i sum) { return sum; }
};

using UnitAvxVnniCodes = PanelsAvx2<DotCodesAvxVnni, 6, 2>;
using UnitAvxVnniGroups = GroupsAvx2<GroupSumsAvxVnni>;

}  // namespace
}  // namespace sluice::ops
