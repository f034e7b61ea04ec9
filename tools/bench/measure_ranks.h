// Measures a layer whose ranks are threads or processes: the step, its communication alone and its
// computation alone, for one or several numbers of ranks that share the same work.
//
// Value types and free functions. One thread calls.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/bench_layer.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

enum class RanksKind : uint8_t { kThreads, kProcesses };

// One number of ranks.
struct RanksSamples {
  LayerCase layer;
  int threads = 1;  // of a rank
  std::vector<EntryOverlap> entries;
};

// The layer that `ranks` ranks have of the work of `first`: as many tokens and experts in all. Errors: they
// cannot be shared evenly.
Expected<LayerCase> sharedAmong(const LayerCase& first, int ranks);

// Each of the layers in turn in every repetition; the first one does not count. `options.threads` is divided
// by the ranks, each has one at least. Processes: before this process has other threads.
Expected<std::vector<RanksSamples>> measureRanks(const std::vector<LayerCase>& layers, RanksKind kind,
                                                 const BenchOptions& options);

}  // namespace sluice::tools
