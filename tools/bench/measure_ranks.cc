#include "tools/bench/measure_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/bench/rank_group.h"

namespace sluice::tools {
namespace {

std::vector<std::string> entriesOf(const BenchOptions& options) {
  if (!options.backward) return {"forward"};
  return {"forward", "backward"};
}

}  // namespace

Expected<LayerCase> sharedAmong(const LayerCase& first, int ranks) {
  const int64_t tokens = first.tokens * first.ranks;
  if (tokens % ranks != 0) return Error{fmt::format("{} ranks cannot share {} tokens evenly", ranks, tokens)};
  if (first.experts < ranks)
    return Error{fmt::format("{} ranks cannot share {} experts", ranks, first.experts)};
  LayerCase layer = first;
  layer.tokens = tokens / ranks;
  layer.ranks = ranks;
  return layer;
}

Expected<std::vector<RanksSamples>> measureRanks(const std::vector<LayerCase>& layers, RanksKind kind,
                                                 const BenchOptions& options) {
  std::vector<RanksSpec> specs;
  double bytes = 0;
  for (const LayerCase& layer : layers) {
    const int threads = std::max(1, options.threads / layer.ranks);
    Expected<Program> program = compileLayer(layer, threads, options);
    if (!program) return program.error();
    bytes += bytesOfLayer(*program, layer);
    specs.push_back({std::move(*program), layer, threads, options.weights, entriesOf(options)});
  }
  if (Status fits = checkBytes(bytes); !fits) return fits.error();
  std::vector<RanksSamples> result;
  std::vector<std::unique_ptr<RankGroup>> groups;
  for (const RanksSpec& spec : specs) {
    auto group = kind == RanksKind::kThreads ? startThreads(spec) : startProcesses(spec);
    if (!group) return group.error();
    groups.push_back(std::move(*group));
    RanksSamples samples{spec.layer, spec.threads, {}};
    for (const std::string& entry : spec.entries) samples.entries.push_back({entry, {}});
    result.push_back(std::move(samples));
  }
  for (int repetition = 0; repetition <= options.repeat; ++repetition) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto samples = groups[g]->repeat();
      if (!samples) return samples.error();
      if (repetition == 0) continue;
      for (size_t i = 0; i < samples->size(); ++i) result[g].entries[i].samples.push_back((*samples)[i]);
    }
  }
  if (!options.forward)
    for (RanksSamples& samples : result) samples.entries.erase(samples.entries.begin());
  return result;
}

}  // namespace sluice::tools
