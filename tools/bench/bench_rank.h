// One rank of a layer whose ranks take turns with others in being measured: its tensors, its context and the
// probe that runs it.
//
// Resource type; one thread uses it. The transport outlives it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "tools/bench/bench_layer.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

// A compiled layer and how its ranks run.
struct RanksSpec {
  Program program;
  LayerCase layer;
  int threads = 1;  // of a rank
  WeightsMode weights = WeightsMode::kOrdinary;
  std::vector<std::string> entries;  // that are measured, in this order; a backward needs the forward before
};

class BenchRank {
 public:
  // Collective. Makes the tensors of this rank. Errors: as Context.
  static Expected<std::unique_ptr<BenchRank>> create(const RanksSpec& spec, Transport& transport);

  // Collective; by entry, the same at all ranks.
  Expected<std::vector<EntrySample>> repeat() { return probe_.repeat(*context_, entries_); }

 private:
  BenchRank() = default;

  std::vector<std::string> entries_;
  TensorMap tensors_;
  std::unique_ptr<Context> context_;
  OverlapProbe probe_;
};

}  // namespace sluice::tools
