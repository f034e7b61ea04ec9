#include "tests/testing/small_layer.h"

#include <utility>

namespace sluice {

MoeShape smallShape(int ranks) {
  MoeShape shape;
  shape.ranks = ranks;
  shape.experts = 3 * ranks;
  shape.topK = 2;
  shape.hidden = 40;
  shape.intermediate = 28;
  shape.maxTokens = 90;
  shape.cores = 5;
  shape.weightsAct = true;
  return shape;
}

std::vector<Sample> samplesOf(int ranks) {
  const int64_t counts[][4] = {{90, 61, 33, 78}, {17, 0, 1, 0}, {0, 0, 0, 0}, {64, 0, 8, 90}};
  const DataRouting routings[] = {DataRouting::kUniform, DataRouting::kMasked, DataRouting::kUniform,
                                  DataRouting::kFewExperts};
  std::vector<Sample> samples;
  for (uint32_t i = 0; i < 4; ++i) samples.push_back({{counts[i], counts[i] + ranks}, routings[i], i + 1});
  return samples;
}

LayerData dataFor(const Program& program, const Sample& sample) {
  return makeProgramData(program.tables(), sample.tokens, sample.routing, sample.seed);
}

LayerData runOn(const Program& program, const Sample& sample, const ContextOptions& options,
                const std::vector<std::string>& entries, const WrapTransport& wrap) {
  LayerData data = dataFor(program, sample);
  const Status ran = runLayer(program, options, data, entries, wrap);
  if (!ran) throw std::runtime_error(ran.error().message);
  return data;
}

}  // namespace sluice
