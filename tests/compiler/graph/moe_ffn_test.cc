// The graphs of graphs/moe_ffn, and damaged ones.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "compiler/graph/ops.h"
#include "compiler/graph/read_graph.h"

namespace sluice {
namespace {

using namespace std::string_view_literals;
using Set = std::pair<std::string, int64_t>;

Graph read(const std::string& name, SymbolSets sets = {}) {
  Expected<Graph> graph = readGraph("graphs/moe_ffn/" + name, sets);
  INFO((graph ? "" : graph.error().message));
  REQUIRE(graph.ok());
  return *graph;
}

std::string textOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  return text.str();
}

TEST_CASE("the backward graph has the seven nodes of the reference and a route") {
  const Graph graph = read("backward.json");
  REQUIRE(graph.entries.size() == 1);
  std::string nodes;
  for (const GraphNode& node : graph.entries[0].nodes) nodes += node.name + "=" + node.alias + " ";
  CHECK(nodes ==
        "route= dispatch=dispatch act_grad=act_grad down_weight_grad=w1_grad swiglu_grad=swiglu_grad "
        "gate_grad=gate_grad combine=combine gate_up_weight_grad=w2_grad ");
}

TEST_CASE("the backward graph carries the 20 parameter slots and 5 tiling slots of the reference") {
  std::vector<int64_t> slots, tilings;
  std::string cores;
  const Graph graph = read("backward.json");
  for (const GraphNode& node : graph.entries[0].nodes) {
    if (!node.reference) continue;
    for (const auto& [name, slot] : node.reference->inputs) slots.push_back(slot);
    for (const auto& [name, slot] : node.reference->outputs) slots.push_back(slot);
    if (node.reference->tiling) tilings.push_back(*node.reference->tiling);
    CHECK(node.reference->split.has_value());
    CHECK(node.reference->split->rows == (node.reference->core == "cube" ? 4096 : 128));
  }
  std::ranges::sort(slots);
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  REQUIRE(slots.size() == 20);
  CHECK(slots.front() == 0);
  CHECK(slots.back() == 19);
  CHECK(tilings == std::vector<int64_t>{20, 23, 24, 21, 22});
}

TEST_CASE("the two entries of the training graph are the two graphs") {
  const Graph train = read("train.json");
  const auto nodesOf = [](const Graph& graph, size_t entry) {
    std::string text;
    for (const GraphNode& node : graph.entries[entry].nodes) {
      if (node.op == GraphOp::kRoute) continue;
      text += node.name + ":";
      for (const TensorUse& use : node.inputs) text += use.tensor ? graph.at(use.tensor).name + "," : "-,";
      for (const TensorUse& use : node.outputs) text += use.tensor ? graph.at(use.tensor).name + "," : "-,";
      text += node.reference == std::nullopt ? "" : node.reference->core;
      text += '\n';
    }
    return text;
  };
  REQUIRE(train.entries.size() == 2);
  CHECK(nodesOf(train, 0) == nodesOf(read("forward.json"), 0));
  CHECK(nodesOf(train, 1) == nodesOf(read("backward.json"), 0));
  CHECK(train.entries[1].after == "forward");
  REQUIRE(train.entries[0].save.size() == 4);
  REQUIRE(train.entries[1].saved.size() == 4);
}

TEST_CASE("the graphs take every allowed size of a large model") {
  const std::array sets = {Set("ep", 64), Set("experts", 256), Set("hidden", 7168),
                           Set("intermediate", 2048)};
  for (const char* name : {"forward.json", "backward.json", "train.json", "shared_expert.json", "lora.json",
                           "two_gmms.json", "geglu.json", "reglu.json", "swiglu_clamp.json"}) {
    INFO(name);
    const Graph graph = read(name, sets);
    CHECK(graph.ranks == 64);
    const auto weight = std::ranges::find(graph.tensors, "gate_up_weight", &GraphTensor::name);
    CHECK(weight->shape ==
          std::vector<Dim>{{Extent::kFixed, 4}, {Extent::kFixed, 7168}, {Extent::kFixed, 4096}});
  }
}

TEST_CASE("the example of FORMAT.md is a graph, and its error message is one") {
  const std::string page = textOf("graphs/FORMAT.md");
  const size_t begin = page.find("```json\n") + 8;
  std::string text = page.substr(begin, page.find("```", begin) - begin);
  const Expected<Graph> graph = readGraphText(text, "layer.json", {});
  INFO((graph ? "" : graph.error().message));
  REQUIRE(graph.ok());

  const std::string_view right = "{\"rows\": \"rows\", \"weight\"";
  REQUIRE(text.find(right) != std::string::npos);
  text.replace(text.find(right), right.size(), "{\"rows\": \"row\", \"weight\"");
  const Expected<Graph> wrong = readGraphText(text, "layer.json", {});
  REQUIRE(!wrong.ok());
  INFO(wrong.error().message);
  CHECK(page.find("\n" + wrong.error().message + "\n") != std::string::npos);
}

TEST_CASE("every truncation of a graph is an error with a position") {
  const std::string text = textOf("graphs/moe_ffn/train.json");
  const size_t last = text.find_last_of('}');
  for (size_t length = 0; length <= last; length += length < 200 ? 1 : 7) {
    const Expected<Graph> graph = readGraphText(text.substr(0, length), "t", {});
    REQUIRE(!graph.ok());
    REQUIRE(graph.error().message.starts_with("t:"));
  }
}

TEST_CASE("damaged graphs are graphs or errors, never crashes") {
  const std::string text = textOf("graphs/moe_ffn/train.json");
  std::mt19937 random(1);
  const std::string_view bytes = "\0\x01\"\\{}[],:0-9eTR/*\xff\x80 \n"sv;
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    const size_t at = random() % damaged.size();
    switch (random() % 3) {
      case 0:
        damaged[at] = bytes[random() % bytes.size()];
        break;
      case 1:
        damaged.erase(at, 1 + random() % 8);
        break;
      default:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    }
    const Expected<Graph> graph = readGraphText(damaged, "t", {});
    if (graph) continue;
    ++errors;
    REQUIRE(graph.error().message.starts_with("t:"));
  }
  CHECK(errors > 2000);
}

}  // namespace
}  // namespace sluice
