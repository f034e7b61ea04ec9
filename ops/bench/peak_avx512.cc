#include <immintrin.h>

#include "ops/bench/peak.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {

double runAvx512DotPeak(int64_t loops) {
  constexpr int kSums = 24;
  __m512 sum[kSums];
  unroll<kSums>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm512_setzero_ps(); });
  const auto x = (__m512bh)_mm512_set1_epi32(0x3f003f00);
  for (int64_t i = 0; i < loops; ++i)
    unroll<kSums>([&](auto i) SLUICE_UNROLLED {
      sum[i.value] = _mm512_dpbf16_ps(sum[i.value], x, x);
      asm volatile("" : "+v"(sum[i.value]));
    });
  return static_cast<double>(loops) * kSums * 32 * 2;
}

double runAvx512CodesPeak(int64_t loops) {
  constexpr int kSums = 24;
  __m512i sum[kSums];
  unroll<kSums>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm512_setzero_si512(); });
  const __m512i x = _mm512_set1_epi32(0x01010101);
  for (int64_t i = 0; i < loops; ++i)
    unroll<kSums>([&](auto i) SLUICE_UNROLLED {
      sum[i.value] = _mm512_dpbusd_epi32(sum[i.value], x, x);
      asm volatile("" : "+v"(sum[i.value]));
    });
  return static_cast<double>(loops) * kSums * 64 * 2;
}

}  // namespace sluice::ops
