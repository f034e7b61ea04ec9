// Two rows of a matrix of bf16, read in place as pairs that vdpbf16ps multiplies. Internal linkage: see
// blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sluice::ops {
namespace {

// Pairs of two rows of 32 columns, in the order of the unpack instructions: the first vector has the
// columns 8l to 8l + 3, the second 8l + 4 to 8l + 7 (l = 0 to 3).
struct Interleaved {
  __m512i half[2];
};

inline Interleaved interleave(__m512i even, __m512i odd) {
  return {{_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)}};
}

// The sums of an Interleaved in the order of the columns.
inline void putInOrder(__m512& first, __m512& second) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const __m512 before = first;
  first = _mm512_permutex2var_ps(before, low, second);
  second = _mm512_permutex2var_ps(before, high, second);
}

// The first ones of 32 columns.
inline __mmask32 makeMask(int32_t columns) {
  if (columns <= 0) return 0;
  return columns >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << columns) - 1);
}

}  // namespace
}  // namespace sluice::ops
