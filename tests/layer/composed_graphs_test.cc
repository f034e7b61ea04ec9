// Every graph that is shipped, forward and backward, from its file to checked outputs.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/layer/graph_run.h"
#include "tests/layer/random_draws.h"

namespace sluice {
namespace {

constexpr double kGraphTolerance = 1.2e-2;

struct Graph {
  const char* file;
  std::optional<std::vector<std::string>> trainable = {{"all"}};
  std::vector<std::pair<std::string, int64_t>> sets = {};  // symbols that only this graph has
  std::vector<std::pair<std::string, std::string>> words = {};
};

const Graph kGraphs[] = {
    {"train.json", std::nullopt},
    {"forward.json"},
    {"shared_expert.json", {{"all"}}, {{"shared_intermediate", 29}}},
    {"lora.json", {{"gate_up_a", "gate_up_b", "down_a", "down_b", "x"}}, {{"lora_rank", 5}}},
    {"two_gmms.json"},
    {"biased.json"},
    {"forward.json", {{"all"}}, {}, {{"activation", "swiglu_clamp"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "swiglu_oai"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "geglu"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "reglu"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "silu"}}},
    {"train.json", std::nullopt, {}, {{"activation", "relu2"}}},
    {"biased.json", {{"all"}}, {}, {{"activation", "relu2"}}},
};

struct GraphSizes {
  int ranks, experts, topK, hidden, intermediate, maxTokens;
};

CompileOptions optionsFor(const Graph& graph, const GraphSizes& s) {
  CompileOptions options{.sets = graph.sets, .words = graph.words, .trainable = graph.trainable};
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"ep", s.ranks},
                                    {"experts", s.experts},
                                    {"top_k", s.topK},
                                    {"hidden", s.hidden},
                                    {"intermediate", s.intermediate},
                                    {"max_tokens", s.maxTokens}})
    options.sets.emplace_back(name, value);
  return options;
}

void checkErrors(const Graph& graph, const Program& program, const LayerData& data) {
  for (const tools::OutputError& error : errorsOfGraph(program, data)) {
    INFO(graph.file << ": " << error.name);
    CHECK(error.relative <= kGraphTolerance);
  }
}

TEST_CASE("every graph that is shipped has its test here") {
  std::set<std::string> shipped = {"backward.json"}, tested = {"backward.json"};
  for (const auto& file : std::filesystem::directory_iterator("graphs/moe_ffn"))
    if (file.path().extension() == ".json") shipped.insert(file.path().filename());
  for (const Graph& graph : kGraphs) tested.insert(graph.file);
  CHECK(shipped == tested);
}

TEST_CASE(
    "every graph computes its outputs and gradients on 1 to 3 ranks, with odd sizes and ragged tokens") {
  RandomDraws draws(4);
  const auto pick = [&](int low, int high) { return draws.pick(low, high); };
  for (const Graph& graph : kGraphs)
    for (int ranks = 1; ranks <= 3; ++ranks) {
      GraphSizes s{.ranks = ranks, .experts = ranks * pick(1, 5)};
      s.topK = pick(1, std::min(4, s.experts));
      s.hidden = pick(17, 90);
      s.intermediate = pick(17, 70);
      s.maxTokens = pick(20, 90);
      const Program program = compileGraph(graph.file, draws.cut(optionsFor(graph, s)));
      tools::InputsSpec spec{.routing = {tools::RoutingKind::kMasked, 0}, .seed = draws.seed()};
      for (int rank = 0; rank < ranks; ++rank)
        spec.tokens.counts.push_back(rank == 1 ? 0 : pick(s.maxTokens / 2, s.maxTokens));
      spec.tokens.most = s.maxTokens;
      LayerData serial = makeGraphData(program, spec), parallel = makeGraphData(program, spec);
      runGraph(program, ExecutorKind::kSerial, serial);
      runGraph(program, ExecutorKind::kParallel, parallel);
      INFO(graph.file << " on " << ranks << " ranks");
      CHECK(hashOutputs(serial) == hashOutputs(parallel));
      checkErrors(graph, program, serial);
    }
}

TEST_CASE("what is fused and what is kept makes no difference to a bit") {
  const tools::InputsSpec spec{
      .tokens = {.counts = {61, 40}}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 2};
  for (const Graph& graph : kGraphs) {
    const auto hashWith = [&](std::vector<std::string> fuse, const char* keep) {
      CompileOptions options = optionsFor(graph, {2, 6, 3, 51, 35, 61});
      options.fuse = std::move(fuse);
      options.keep = keep;
      const Program program = compileGraph(graph.file, options);
      LayerData data = makeGraphData(program, spec);
      runGraph(program, ExecutorKind::kParallel, data);
      return hashOutputs(data);
    };
    INFO(graph.file);
    const uint64_t expected = hashWith({}, "all");
    CHECK(hashWith({"none"}, "all") == expected);
    if (!graph.trainable) continue;
    CHECK(hashWith({}, "minimal") == expected);
    CHECK(hashWith({}, "regather") == expected);
    CHECK(hashWith({"none"}, "minimal") == expected);
  }
}

TEST_CASE("weight gradients of every graph are added to what their tensors hold") {
  for (const Graph& graph : kGraphs) {
    CompileOptions options = optionsFor(graph, {2, 4, 2, 45, 33, 50});
    options.accumulate = true;
    const Program program = compileGraph(graph.file, options);
    LayerData data = makeGraphData(
        program, {.tokens = {.counts = {50, 21}}, .routing = {tools::RoutingKind::kUniform, 0}, .seed = 6});
    runGraph(program, ExecutorKind::kParallel, data);
    checkErrors(graph, program, data);
  }
}

TEST_CASE(
    "inputs that are made for a graph have the dense weights of all ranks alike, and those of experts not") {
  const Program program = compileGraph("shared_expert.json", optionsFor(kGraphs[2], {2, 4, 2, 45, 33, 50}));
  const LayerData data = makeGraphData(program, {.tokens = {.counts = {50, 21}}});
  const auto sameAtBoth = [&](const char* name) {
    const tools::Tensor &a = data.inputs[0].at(name), &b = data.inputs[1].at(name);
    return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
  };
  CHECK(sameAtBoth("shared_gate_up_weight"));
  CHECK(sameAtBoth("shared_down_weight"));
  CHECK_FALSE(sameAtBoth("gate_up_weight"));
}

// train.json with weight gradients of another type.
std::string trainWithGradients(const std::string& type) {
  std::stringstream text;
  text << std::ifstream("graphs/moe_ffn/train.json").rdbuf();
  std::string graph = text.str();
  for (const char* name : {"gate_up_weight_grad", "down_weight_grad"}) {
    const std::string before = fmt::format("\"{}\": {{\"type\": \"F32\"", name);
    const size_t at = graph.find(before);
    REQUIRE(at != graph.npos);
    graph.replace(at, before.size(), fmt::format("\"{}\": {{\"type\": \"{}\"", name, type));
  }
  const std::string path = std::filesystem::path(std::getenv("TEST_TMPDIR")) / ("train_" + type + ".json");
  std::ofstream(path) << graph;
  return path;
}

TEST_CASE("gradients in bf16 are added to like those in fp32, and any other type is an error") {
  CompileOptions options = optionsFor(kGraphs[0], {2, 4, 2, 45, 33, 50});
  options.accumulate = true;
  const tools::InputsSpec spec{
      .tokens = {.counts = {50, 21}}, .routing = {tools::RoutingKind::kUniform, 0}, .seed = 6};
  const Program program = compileGraph(trainWithGradients("BF16"), options);
  LayerData data = makeGraphData(program, spec);
  CHECK(data.outputs[0].at("down_weight_grad").type() == DType::kBF16);
  runGraph(program, ExecutorKind::kParallel, data);
  checkErrors({"train.json in bf16"}, program, data);

  LocalRanks ranks(2);
  std::thread other([&] { (void)Context::create(program, ranks.transport(1), {}); });
  const auto context = Context::create(program, ranks.transport(0), {});
  other.join();
  REQUIRE(context.ok());
  tools::Tensor wide(DType::kF32, {2, 33, 45});
  CHECK_THAT((*context)->bind("down_weight_grad", viewTensor(wide)).error().message,
             Catch::Matchers::Contains("down_weight_grad") && Catch::Matchers::Contains("F32"));
  const auto target = loadTarget("targets/cpu.json", {});
  CHECK_THAT(compile(trainWithGradients("I32"), *target, options).error().message,
             Catch::Matchers::Contains("weight_grad"));
}

}  // namespace
}  // namespace sluice
