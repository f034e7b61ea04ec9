#include <algorithm>

#include "runtime/bench/chain.h"
#include "tools/calibrate/measure.h"

namespace sluice::tools {

Expected<double> measureTask(int cores, const Effort& effort) {
  ChainShape shape;
  shape.cores = std::min(cores, 2);
  const auto chain = Chain::create(shape, shape.cores);
  if (!chain) return chain.error();
  double best = 1;
  for (int pass = 0; pass < 4 * effort.passes + 2; ++pass) {
    if (Status ran = (*chain)->run(); !ran) return ran.error();
    const RunStats& stats = (*chain)->context().lastRun();
    best = std::min(best, (stats.runSeconds - stats.bindSeconds) / static_cast<double>(stats.tasks));
  }
  return best * shape.cores;
}

}  // namespace sluice::tools
