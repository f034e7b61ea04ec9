// Layers whose experts are shared by the ranks of a group: put together, what they compute is what the
// formulas of the layer give for whole weights.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/program/words.h"
#include "tests/layer/random_draws.h"
#include "tests/layer/whole_layer.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;

struct Layer {
  int ep = 1, tp = 1;
  const char* tokens = "own";
  int experts = 1, topK = 1, hidden = 24, intermediate = 24, maxTokens = 40;
  std::string activation = "";  // empty: that of the graph
  const char* graph = "forward.json";
  Names trainable = {"all"};
  std::vector<std::pair<std::string, int64_t>> sets = {};  // symbols that only this graph has

  int ranks() const { return ep * tp; }
  bool hasSameTokens() const { return std::string(tokens) == "same"; }
  // All its tokens and experts at one rank.
  Layer alone() const {
    Layer one = *this;
    one.ep = one.tp = 1;
    one.maxTokens = ranks() * maxTokens;
    return one;
  }
};

CompileOptions optionsOf(const Layer& layer) {
  CompileOptions options{
      .sets = layer.sets, .words = {{"tokens", layer.tokens}}, .trainable = layer.trainable};
  if (!layer.activation.empty()) options.words.emplace_back("activation", layer.activation);
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"ep", layer.ep},
                                    {"tp", layer.tp},
                                    {"experts", layer.experts},
                                    {"top_k", layer.topK},
                                    {"hidden", layer.hidden},
                                    {"intermediate", layer.intermediate},
                                    {"max_tokens", layer.maxTokens}})
    options.sets.emplace_back(name, value);
  return options;
}

Program compileLayer(const Layer& layer) { return compileGraph(layer.graph, optionsOf(layer)); }

std::ostream& operator<<(std::ostream& out, const Layer& l) {
  return out << l.graph << ", ep " << l.ep << ", tp " << l.tp << ", " << l.tokens << " tokens, " << l.experts
             << " experts, top_k " << l.topK << ", H " << l.hidden << ", I " << l.intermediate << ", "
             << l.activation;
}

tools::MoeDims dimsOf(const Layer& layer) { return *tools::moeDimsOf(compileLayer(layer.alone()).tables()); }

// The outputs of the whole layer against its formulas.
std::vector<tools::OutputError> errorsOfWhole(const tools::MoeDims& dims, const LayerData& whole) {
  const std::vector inputs = {*tools::moeInputs(dims, 0, whole.inputs[0])};
  const std::vector outputs = {*tools::moeOutputs(dims, 0, whole.outputs[0], whole.tokens[0])};
  auto errors = tools::moeErrors(dims, inputs, outputs, 1);
  if (!errors) FAIL(errors.error().message);
  REQUIRE(errors->size() == 5);
  return *errors;
}

class RandomLayers : RandomDraws {
 public:
  using RandomDraws::RandomDraws;

  Layer layer(int number) {
    Layer l{.ep = pick(1, 3), .tp = pick(1, 4), .tokens = pick(0, 1) == 0 ? "own" : "same"};
    l.experts = pick(1, 4 * l.ep);
    l.topK = pick(1, std::min(4, l.experts));
    l.hidden = pick(17, 90);
    l.intermediate = l.tp * pick(5, 25);
    l.maxTokens = pick(10, 60);
    l.activation = text::listWords(ActivationKind{})[number % std::size(kActivations)];
    return l;
  }

  tools::InputsSpec spec(const Layer& l) {
    constexpr tools::RoutingKind kKinds[] = {tools::RoutingKind::kMasked, tools::RoutingKind::kZipf,
                                             tools::RoutingKind::kHalfEmpty, tools::RoutingKind::kOneHot};
    return {.tokens = tokens(l.ranks(), l.maxTokens, l.hasSameTokens() ? l.tp : 1),
            .routing = {kKinds[pick(0, 3)], 1.2},
            .seed = seed()};
  }

  CompileOptions options(const Layer& l) { return cut(optionsOf(l)); }
};

TEST_CASE("random layers compute, put together, what the formulas give for whole weights") {
  RandomLayers random(31);
  int shared = 0;
  for (int number = 0; number < 40; ++number) {
    const Layer layer = random.layer(number);
    INFO(layer);
    shared += layer.tp > 1;
    const Program program = compileGraph(layer.graph, random.options(layer));
    const LayerData before = makeGraphData(program, random.spec(layer));
    const tools::MoeDims dims = dimsOf(layer);
    onEveryIsa([&] {
      const LayerData data = runOf(program, {.threads = 3, .pin = false}, before);
      checkErrors(errorsOfWhole(dims, joinRanks(program, data)), program, data);
      checkErrors(errorsOfGraph(program, data), program, data);
      CHECK(hashOutputs(runOf(program, {.threads = 1}, before)) == hashOutputs(data));
      CHECK(hashOutputs(runOf(program, kSerial, before)) == hashOutputs(data));
    });
  }
  CHECK(shared >= 20);
}

int64_t nonZeros(const tools::Tensor& tensor) {
  int64_t count = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    count += elementAt(tensor.type(), tensor.data(), i) != 0 ? 1 : 0;
  return count;
}

TEST_CASE("where bf16 is exact, any number of ranks per expert gives the bits of one rank that has all") {
  const Layer alone{
      .experts = 7, .topK = 3, .hidden = 24, .intermediate = 24, .maxTokens = 120, .activation = "reglu"};
  const Program one = compileLayer(alone);
  LayerData before = makeGraphData(
      one, {.tokens = {.counts = {120}}, .routing = {tools::RoutingKind::kMasked, 0}, .seed = 12});
  makeLayerExact(before);
  struct Ranks {
    int ep, tp;
    const char* tokens;
    std::vector<int64_t> counts;
  };
  const Ranks kRanks[] = {
      {2, 1, "own", {77, 43}},
      {1, 2, "own", {120, 0}},
      {1, 2, "same", {120, 120}},
      {2, 2, "own", {31, 0, 40, 49}},
      {2, 2, "same", {71, 71, 49, 49}},
      {1, 4, "own", {1, 2, 17, 100}},
      {3, 4, "own", {10, 10, 10, 10, 0, 20, 10, 10, 1, 9, 10, 20}},
      {1, 4, "same", {120, 120, 120, 120}},
      {3, 3, "same", {120, 120, 120, 0, 0, 0, 0, 0, 0}},
      {2, 4, "same", {50, 50, 50, 50, 70, 70, 70, 70}},
  };
  onEveryIsa([&] {
    const LayerData expected = runOf(one, kSerial, before);
    for (const auto& [name, tensor] : expected.outputs[0]) CHECK(nonZeros(tensor) > tensor.elements() / 4);
    for (const tools::OutputError& error : errorsOfWhole(dimsOf(alone), expected)) {
      INFO(error.name);
      CHECK(error.relative == 0);
    }
    for (const Ranks& ranks : kRanks) {
      Layer layer = alone;
      layer.ep = ranks.ep, layer.tp = ranks.tp, layer.tokens = ranks.tokens;
      INFO(layer);
      const Program program = compileLayer(layer);
      const LayerData data =
          runOf(program, {.threads = 2, .pin = false}, splitLayer(program, before, ranks.counts));
      const LayerData whole = joinRanks(program, data);
      for (const auto& [name, tensor] : expected.outputs[0]) {
        INFO(name);
        CHECK(sameBits(whole.outputs[0].at(name), tensor));
      }
      for (const tools::OutputError& error : errorsOfGraph(program, data)) CHECK(error.relative == 0);
    }
  });
}

TEST_CASE("adapters, biases and shared experts compute, put together, what one rank that has all computes") {
  for (const char* tokens : {"own", "same"})
    for (const bool accumulate : {false, true})
      for (Layer layer : {Layer{.graph = "biased.json"},
                          Layer{.activation = "relu2", .graph = "biased.json"},
                          Layer{.graph = "lora.json", .sets = {{"lora_rank", 5}}},
                          Layer{.activation = "silu", .graph = "lora.json", .sets = {{"lora_rank", 5}}},
                          {.graph = "shared_expert.json", .sets = {{"shared_intermediate", 29}}}}) {
        layer.ep = layer.tp = 2;
        layer.tokens = tokens;
        layer.experts = 5, layer.topK = 2, layer.hidden = 51, layer.intermediate = 38;
        INFO(layer << (accumulate ? ", accumulated" : ""));
        const auto compiled = [&](const Layer& each) {
          CompileOptions options = optionsOf(each);
          options.accumulate = accumulate;
          return compileGraph(each.graph, options);
        };
        const Program program = compiled(layer), one = compiled(layer.alone());
        const LayerData before = makeGraphData(
            program, {.tokens = {.counts = layer.hasSameTokens() ? std::vector<int64_t>{40, 40, 23, 23}
                                                                 : std::vector<int64_t>{40, 0, 23, 31}},
                      .routing = {tools::RoutingKind::kMasked, 0},
                      .seed = 8});
        onEveryIsa([&] {
          const LayerData data = runOf(program, {.threads = 3, .pin = false}, before);
          const LayerData whole = joinRanks(program, data);
          checkErrors(errorsOfGraph(one, whole), one, whole);
          checkErrors(errorsOfGraph(program, data), program, data);
          CHECK(hashOutputs(runOf(program, kSerial, before)) == hashOutputs(data));
        });
      }
}

double worstOf(const std::vector<tools::OutputError>& errors) {
  double worst = 0;
  for (const tools::OutputError& error : errors) worst = std::max(worst, error.relative);
  return worst;
}

TEST_CASE("the weights of another shard are found, whichever rank has them") {
  for (const char* tokens : {"own", "same"}) {
    const Layer layer{.ep = 2, .tp = 2, .tokens = tokens, .experts = 5, .topK = 2};
    INFO(layer);
    const Program program = compileLayer(layer);
    const tools::MoeDims dims = dimsOf(layer);
    const tools::InputsSpec spec{.tokens = {.counts = {30, 30, 17, 17}}, .seed = 4};
    for (const char* weight : {"gate_up_weight", "down_weight"})
      for (int rank = 0; rank < 4; ++rank) {
        INFO(weight << " of rank " << rank);
        LayerData data = makeGraphData(program, spec), other = makeGraphData(program, spec);
        data.inputs[rank].at(weight) = std::move(other.inputs[rank ^ 1].at(weight));
        data = runOf(program, kSerial, data);
        data.inputs = makeGraphData(program, spec).inputs;
        CHECK(worstOf(errorsOfGraph(program, data)) > 0.1);
        CHECK(worstOf(errorsOfWhole(dims, joinRanks(program, data))) > 0.1);
      }
  }
}

}  // namespace
}  // namespace sluice
