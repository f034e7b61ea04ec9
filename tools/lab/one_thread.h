// What the benchmarks of kernels on one thread share: its clock, its register peak, and numbers. Free
// functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <span>

#include "runtime/abi/kernels.h"
#include "runtime/base/clock.h"

namespace sluice::ops {

// On the thread's CPU clock, which does not count the work of others on its core.
inline double threadSeconds(const std::function<void()>& work) {
  const double begin = secondsNow(CLOCK_THREAD_CPUTIME_ID);
  work();
  return secondsNow(CLOCK_THREAD_CPUTIME_ID) - begin;
}

// The operations per second of one of the loops of peak.h, the best of several runs.
inline double findPeak(Isa isa, double (*run)(Isa isa, int64_t loops)) {
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    double operations = 0;
    const double time = threadSeconds([&] { operations = run(isa, 1 << 18); });
    best = std::max(best, operations / time);
  }
  return best;
}

// The same numbers from -1 to 1 in each call.
inline void fillRandomly(std::span<BFloat16> values) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (BFloat16& value : values) value = toBFloat16(uniform(random));
}

}  // namespace sluice::ops
