#include <immintrin.h>

#include "ops/bench/peak.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {

double runAvxVnniCodesPeak(int64_t loops) {
  constexpr int kSums = 12;
  __m256i sum[kSums];
  unroll<kSums>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm256_setzero_si256(); });
  const __m256i x = _mm256_set1_epi32(0x01010101);
  for (int64_t i = 0; i < loops; ++i)
    unroll<kSums>([&](auto i) SLUICE_UNROLLED {
      sum[i.value] = _mm256_dpbusd_avx_epi32(sum[i.value], x, x);
      asm volatile("" : "+x"(sum[i.value]));
    });
  return static_cast<double>(loops) * kSums * 32 * 2;
}

}  // namespace sluice::ops
