#include "compiler/export/graph_json.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "compiler/graph/read_graph.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

// Without what the text of a file alone decides.
void forgetPlaces(Graph& graph) {
  graph.file.clear();
  graph.pos = {};
  for (GraphSymbol& symbol : graph.symbols) {
    symbol.initial = symbol.min = symbol.max = symbol.value;
    symbol.doc.clear();
  }
  for (GraphTensor& tensor : graph.tensors) tensor.pos = {};
  const auto forget = [](std::vector<TensorUse>& uses) {
    for (TensorUse& use : uses) use.pos = {};
  };
  for (GraphEntry& entry : graph.entries) {
    entry.pos = {};
    for (auto* uses : {&entry.inputs, &entry.outputs, &entry.save, &entry.saved}) forget(*uses);
    for (GraphNode& node : entry.nodes) {
      node.pos = {};
      forget(node.inputs);
      forget(node.outputs);
    }
  }
}

Graph readAgain(const Graph& graph) {
  const Expected<Graph> again = readGraphText(printGraphJson(graph), "again.json", {});
  if (!again) FAIL(again.error().message);
  return *again;
}

TEST_CASE("a graph file that was written reads to the same graph") {
  const char* path =
      GENERATE("graphs/moe_ffn/train.json", "graphs/moe_ffn/forward.json", "graphs/moe_ffn/backward.json");
  const std::vector<std::pair<std::string, int64_t>> sets = {{"ep", 4}, {"hidden", 96}};
  Expected<Graph> graph = readGraph(path, sets);
  REQUIRE(graph);
  Graph again = readAgain(*graph);
  forgetPlaces(*graph);
  forgetPlaces(again);
  CHECK(*graph == again);
}

TEST_CASE("the experts of ranks that own different numbers are written as the extent") {
  const std::vector<std::pair<std::string, int64_t>> sets = {{"ep", 3}, {"experts", 8}};
  Expected<Graph> graph = readGraph("graphs/moe_ffn/train.json", sets);
  REQUIRE(graph);
  CHECK_THAT(printGraphJson(*graph),
             Contains("\"gate_up_weight\": {\"type\":\"BF16\",\"shape\":[\"E\",2048"));
  Graph again = readAgain(*graph);
  forgetPlaces(*graph);
  forgetPlaces(again);
  CHECK(*graph == again);
}

TEST_CASE("splits, kinds, limits and the reference are kept") {
  Expected<Graph> graph = readGraph("graphs/moe_ffn/train.json", {});
  REQUIRE(graph);
  GraphNode& swiglu = graph->entries[0].nodes[3];
  REQUIRE(swiglu.op == GraphOp::kActivation);
  swiglu.kind = "swiglu_clamp";
  swiglu.limit = 3.5;
  swiglu.split = GraphSplit{GraphSpace::kRows, 64};
  graph->entries[0].nodes[2].alpha = 0.1;
  graph->entries[0].nodes[4].split = GraphSplit{GraphSpace::kTokens, 16};
  const Graph again = readAgain(*graph);
  CHECK(again.entries[0].nodes[3].limit == 3.5);
  CHECK(again.entries[0].nodes[3].kind == "swiglu_clamp");
  CHECK(again.entries[0].nodes[3].split == swiglu.split);
  CHECK(again.entries[0].nodes[3].reference == swiglu.reference);
  CHECK(again.entries[0].nodes[2].alpha == 0.1);
  CHECK(again.entries[0].nodes[4].split == GraphSplit{GraphSpace::kTokens, 16});
}

TEST_CASE("a symbol has only the value that the sizes were made with") {
  const std::vector<std::pair<std::string, int64_t>> sets = {{"ep", 4}};
  const Expected<Graph> graph = readGraph("graphs/moe_ffn/train.json", sets);
  REQUIRE(graph);
  const std::string text = printGraphJson(*graph);
  const nlohmann::json json = nlohmann::json::parse(text);
  CHECK(json["symbols"]["ep"]["max"] == 4);
  CHECK(json["tensors"]["gate_up_weight"]["shape"] == nlohmann::json::array({16, 2048, 1536}));
  const std::vector<std::pair<std::string, int64_t>> other = {{"ep", 2}};
  const Expected<Graph> changed = readGraphText(text, "again.json", other);
  REQUIRE_FALSE(changed);
  CHECK_THAT(changed.error().message, Contains("'ep'"));
}

}  // namespace
}  // namespace sluice
