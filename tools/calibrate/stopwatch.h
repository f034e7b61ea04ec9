// Timing for calibration: the best of many short runs, since other work on the machine only slows down.
//
// Free functions; one thread at a time.
#pragma once

#include <algorithm>

#include "runtime/base/seconds.h"

namespace sluice::tools {

// The best time in seconds of `work`, which is run for `budget` seconds and at least 5 times.
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
