#include <immintrin.h>

#include "ops/bench/peak.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {

double runAvx2FmaPeak(int64_t loops) {
  constexpr int kSums = 12;
  __m256 sum[kSums];
  unroll<kSums>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm256_setzero_ps(); });
  const __m256 x = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < loops; ++i)
    unroll<kSums>([&](auto i) SLUICE_UNROLLED {
      sum[i.value] = _mm256_fmadd_ps(x, x, sum[i.value]);
      asm volatile("" : "+x"(sum[i.value]));
    });
  return static_cast<double>(loops) * kSums * 8 * 2;
}

double runAvx2CodesPeak(int64_t loops) {
  constexpr int kSums = 12;
  __m256i sum[kSums];
  unroll<kSums>([&](auto i) SLUICE_UNROLLED { sum[i.value] = _mm256_setzero_si256(); });
  __m256i x = _mm256_set1_epi32(0x00010001);
  for (int64_t i = 0; i < loops; ++i)
    unroll<kSums>([&](auto i) SLUICE_UNROLLED {
      asm volatile("" : "+x"(x));
      sum[i.value] = _mm256_add_epi32(sum[i.value], _mm256_madd_epi16(x, x));
      asm volatile("" : "+x"(sum[i.value]));
    });
  return static_cast<double>(loops) * kSums * 16 * 2;
}

}  // namespace sluice::ops
