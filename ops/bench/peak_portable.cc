#include "ops/bench/peak.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {

double runPortablePeak(int64_t loops) {
  typedef float Vector __attribute__((vector_size(16)));
  constexpr int kSums = 12;
  Vector sum[kSums];
  unroll<kSums>([&](auto i) SLUICE_UNROLLED { sum[i.value] = Vector{}; });
  Vector x = {0.5f, 0.5f, 0.5f, 0.5f};
  for (int64_t i = 0; i < loops; ++i)
    unroll<kSums>([&](auto i) SLUICE_UNROLLED {
      sum[i.value] += x * x;
#if defined(__x86_64__)
      asm volatile("" : "+x"(sum[i.value]), "+x"(x));  // each product is a new one
#elif defined(__aarch64__)
      asm volatile("" : "+w"(sum[i.value]), "+w"(x));
#else
      asm volatile("" : "+m"(sum[i.value]), "+m"(x));
#endif
    });
  return static_cast<double>(loops) * kSums * 4 * 2;
}

}  // namespace sluice::ops
