// The measurements of `sluice calibrate`. Each function takes seconds, uses the kernels that a run would use,
// and leaves nothing behind. One thread calls; memory and link start their own threads.
#pragma once

#include <algorithm>
#include <string>

#include "runtime/abi/kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/expected.h"
#include "runtime/cost/rates.h"

namespace sluice::tools {

// How long to measure: `run` seconds per product, footprints of `bytes`.
struct Effort {
  double run = 0.02;
  size_t bytes = size_t{192} << 20;
  int passes = 3;
};

struct MeasuredMatrix {
  MatrixRates rates;
  double worstError = 0;  // of the fit, over all measured products
};

// Seconds of one product, always the same, whose change shows how much other work disturbs the measurement.
double referenceSeconds(const ops::KernelSet& kernels, const Effort& effort);

MeasuredMatrix measureMatrix(const ops::KernelSet& kernels, const Effort& effort);
VectorRates measureVector(const ops::KernelSet& kernels, const Effort& effort);

// `cores` threads share the memory. Errors of this and the next two: the system cannot start the threads.
Expected<MemoryRates> measureMemory(const ops::KernelSet& kernels, int cores, const Effort& effort);

// Sizes as hwloc reports them; 1 MiB and 0 if it does not know them.
Expected<CacheSizes> measureCaches(const Effort& effort);

// The link to a rank that is a thread of this process: rows are copied, a signal is an atomic addition.
Expected<LinkRates> measureLink(const ops::KernelSet& kernels, int cores, const Effort& effort);

// Seconds of a core per task with a nearly empty kernel, in the parallel executor.
Expected<double> measureTask(int cores, const Effort& effort);

// The best time in seconds of `work`, which is run for `budget` seconds and at least 5 times: other work on
// the machine only slows down.
template <class Work>
double bestSeconds(double budget, Work&& work) {
  double best = 1e9;
  const double end = secondsNow() + budget;
  for (int run = 0; run < 5 || secondsNow() < end; ++run) {
    const double begin = secondsNow();
    work();
    best = std::min(best, secondsNow() - begin);
  }
  return best;
}

}  // namespace sluice::tools
