// Whatever graph is differentiated, its backward entry computes the gradients of its forward entry: the
// families of both in double precision, against central differences.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/layer/graph_run.h"
#include "tools/evaluate/evaluate.h"
#include "tools/moe/random.h"

namespace sluice {
namespace {

constexpr double kDelta = 1e-6;
constexpr double kGradientTolerance = 1e-6;  // of the length of a gradient

using Names = std::vector<std::string>;
using Inputs = std::vector<tools::ValueMap>;  // by rank

struct Case {
  const char* graph;
  Names trainable;
  std::vector<std::pair<std::string, int64_t>> sets = {};  // symbols that only this graph has
  double scale = 1;                                        // of x, so that a clamp cuts
  const char* activation = nullptr;                        // null: that of the graph
};

CompileOptions optionsFor(const Case& c, const char* keep) {
  CompileOptions options{.sets = c.sets, .trainable = c.trainable, .keep = keep};
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"ep", 2},
                                    {"experts", 4},
                                    {"top_k", 2},
                                    {"hidden", 12},
                                    {"intermediate", 10},
                                    {"max_tokens", 9}})
    options.sets.emplace_back(name, value);
  if (c.activation != nullptr) options.words = {{"activation", c.activation}};
  return options;
}

std::string gradientOf(const Buffer& buffer) {
  if (buffer.shape[0].extent != Extent::kTokens) return buffer.name + "_grad";
  return (buffer.name.size() == 1 ? "d" : "d_") + buffer.name;
}

// sum over all ranks of a . b
double dot(const Inputs& a, const std::string& aName, const Inputs& b, const std::string& bName) {
  double sum = 0;
  for (size_t rank = 0; rank < a.size(); ++rank) {
    const std::vector<double>&left = a[rank].at(aName).data, &right = b[rank].at(bName).data;
    for (size_t i = 0; i < left.size(); ++i) sum += left[i] * right[i];
  }
  return sum;
}

Inputs run(const Program& program, const std::vector<EntryId>& entries, const Inputs& inputs) {
  auto outputs = tools::evaluate(program.verified(), entries, inputs, {});
  if (!outputs) FAIL(outputs.error().message);
  return std::move(*outputs);
}

// One random direction for each trainable input, at all ranks.
void checkGradients(const Case& c, const char* keep) {
  const Program program = compileGraph(c.graph, optionsFor(c, keep));
  Inputs inputs;
  for (const tools::TensorMap& tensors :
       makeGraphData(program, {.tokens = {.counts = {9, 6}}, .routing = {tools::RoutingKind::kMasked, 0}})
           .inputs)
    inputs.push_back(tools::toValues(tensors));
  for (tools::ValueMap& map : inputs)
    for (double& value : map.at("x").data) value *= c.scale;
  const auto loss = [&] { return dot(run(program, {{0}}, inputs), "y", inputs, "dy"); };
  const Inputs outputs = run(program, {{0}, {1}}, inputs);

  std::set<std::string> checked;
  for (const Buffer& buffer : program.tables().buffers) {
    const std::string gradient = gradientOf(buffer);
    if (buffer.role != Role::kInput || !outputs[0].contains(gradient)) continue;
    INFO(c.graph << ", keep " << keep << ": " << gradient);
    checked.insert(buffer.name);
    tools::Random random(7, checked.size());
    const Inputs before = inputs;
    Inputs direction = inputs;
    for (tools::ValueMap& map : direction)
      for (double& value : map.at(buffer.name).data) value = random.normal();
    const auto lossAt = [&](double step) {
      for (size_t rank = 0; rank < inputs.size(); ++rank)
        for (size_t i = 0; i < inputs[rank].at(buffer.name).data.size(); ++i)
          inputs[rank].at(buffer.name).data[i] =
              before[rank].at(buffer.name).data[i] + step * direction[rank].at(buffer.name).data[i];
      return loss();
    };
    const double slope = (lossAt(kDelta) - lossAt(-kDelta)) / (2 * kDelta);
    inputs = before;
    const double length = std::sqrt(dot(outputs, gradient, outputs, gradient));
    CHECK(length > 1e-3);
    CHECK(std::abs(dot(outputs, gradient, direction, buffer.name) - slope) <= kGradientTolerance * length);
  }
  CHECK(checked == std::set<std::string>(c.trainable.begin(), c.trainable.end()));
}

TEST_CASE("the derived backward of every graph computes the gradients of its forward") {
  const Names layer = {"x", "expert_weights", "gate_up_weight", "down_weight"};
  const auto with = [&](Names more) {
    more.insert(more.end(), layer.begin(), layer.end());
    return more;
  };
  const Names adapters = {"gate_up_a", "gate_up_b", "down_a", "down_b"};
  const std::pair<std::string, int64_t> shared = {"shared_intermediate", 7}, rank = {"lora_rank", 3};
  const Case cases[] = {
      {"forward.json", layer},
      {"forward.json", {"down_weight"}},
      {"shared_expert.json", with({"shared_gate_up_weight", "shared_down_weight"}), {shared}},
      {"shared_expert.json", {"x", "shared_gate_up_weight"}, {shared}},
      {"lora.json", adapters, {rank}},
      {"lora.json", with(adapters), {rank}},
      {"two_gmms.json", with({"second_down_weight"})},
      {"biased.json", with({"gate_up_bias", "down_bias"}), {}, 6},
      {"biased.json", {"expert_weights", "gate_up_bias"}},
      {"forward.json", layer, {}, 6, "swiglu_clamp"},
      {"forward.json", layer, {}, 6, "swiglu_oai"},
      {"forward.json", layer, {}, 1, "geglu"},
      {"forward.json", layer, {}, 1, "reglu"},
      {"forward.json", layer, {}, 1, "silu"},
      {"forward.json", layer, {}, 1, "relu2"},
      {"biased.json", with({"gate_up_bias", "down_bias"}), {}, 1, "relu2"},
      {"lora.json", adapters, {rank}, 1, "relu2"},
      {"shared_expert.json", with({"shared_gate_up_weight", "shared_down_weight"}), {shared}, 1, "silu"},
  };
  for (const Case& c : cases)
    for (const char* keep : {"all", "minimal", "regather"}) checkGradients(c, keep);
}

}  // namespace
}  // namespace sluice
