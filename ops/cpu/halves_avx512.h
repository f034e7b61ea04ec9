// Whether the processor adds the products of 512 bits in two halves. For tests, the kernels are also compiled
// with SLUICE_AVX512_OTHER_WIDTH: then they do what a processor of the other kind would do. Internal linkage:
// see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/unroll.h"

#if defined(SLUICE_AVX512_OTHER_WIDTH)
#define SLUICE_AVX512_NAMESPACE avx512_other_width
#define SLUICE_ACTS_OTHERWISE true
#else
#define SLUICE_AVX512_NAMESPACE avx512
#define SLUICE_ACTS_OTHERWISE false
#endif

namespace sluice::ops {
namespace {

// The ticks of many independent vdpbf16ps of a width: the fewest of some attempts, because others use the
// core too.
template <class Vector, class Add>
uint64_t fewestTicks(const Add& add) {
  constexpr int kAttempts = 16, kLoops = 32, kSums = 12;  // more sums than one takes cycles
  uint64_t fewest = UINT64_MAX;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Vector sum[kSums] = {};
    const uint64_t begin = __rdtsc();
    for (int i = 0; i < kLoops; ++i)
      unroll<kSums>([&](auto s) SLUICE_UNROLLED {
        sum[s.value] = add(sum[s.value]);
        asm volatile("" : "+v"(sum[s.value]));
      });
    const uint64_t ticks = __rdtsc() - begin;
    if (ticks < fewest) fewest = ticks;
  }
  return fewest;
}

// Then adding 256 bits takes half as long. Measured once per process, in about 10 us; results do not depend
// on it.
inline bool addsInHalves() {
  static const bool halves = [] {
    const auto whole = fewestTicks<__m512>(
        [](__m512 sum) SLUICE_UNROLLED { return _mm512_dpbf16_ps(sum, (__m512bh)sum, (__m512bh)sum); });
    const auto half = fewestTicks<__m256>(
        [](__m256 sum) SLUICE_UNROLLED { return _mm256_dpbf16_ps(sum, (__m256bh)sum, (__m256bh)sum); });
    return (2 * whole > 3 * half) != SLUICE_ACTS_OTHERWISE;
  }();
  return halves;
}

}  // namespace
}  // namespace sluice::ops
