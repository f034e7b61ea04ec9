#include "compiler/graph/kept_bytes.h"

#include <catch2/catch.hpp>

#include "compiler/graph/read_graph.h"

namespace sluice {
namespace {

TEST_CASE("the training graph keeps its rows, the product and the activation, in bytes of a row") {
  const Expected<Graph> graph = readGraph("graphs/moe_ffn/train.json", {});
  REQUIRE(graph.ok());
  CHECK(keptBytes(*graph) == KeptBytes{.row = 2 * (2048 + 2 * 768 + 768), .token = 0});
}

TEST_CASE("what is kept of tokens counts a token, and the routing not at all") {
  Graph graph;
  graph.tensors.resize(3);
  graph.tensors[0].routing = true;
  graph.tensors[1].type = DType::kBF16;
  graph.tensors[1].shape = {{Extent::kTokens, 0}, {Extent::kFixed, 24}};
  graph.tensors[2].shape = {{Extent::kRows, 0}};
  graph.entries.resize(1);
  for (uint32_t i = 0; i < 3; ++i) graph.entries[0].save.push_back({TensorId{i}, {}});
  CHECK(keptBytes(graph) == KeptBytes{.row = 4, .token = 48});
}

TEST_CASE("a graph that saves nothing keeps nothing") {
  const Expected<Graph> graph = readGraph("graphs/moe_ffn/forward.json", {});
  REQUIRE(graph.ok());
  CHECK(keptBytes(*graph) == KeptBytes{});
}

}  // namespace
}  // namespace sluice
