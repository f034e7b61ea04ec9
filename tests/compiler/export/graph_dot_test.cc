#include <algorithm>
#include <catch2/catch.hpp>

#include "compiler/export/graph_text.h"
#include "compiler/graph/read_graph.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

MoeShape shape() {
  MoeShape shape;
  shape.ranks = 2;
  return shape;
}

std::string formatDot(const TaskProgram& program) {
  const std::vector<std::pair<std::string, int64_t>> sets = {{"ep", 2}, {"experts", 4}, {"top_k", 2}};
  mlir::MLIRContext context;
  const auto graph = readGraph("graphs/moe_ffn/train.json", {sets}, context);
  if (!graph) FAIL(graph.error().message);
  return printDot(*graph->get().getOps<moe::GraphOp>().begin(), program);
}

// The line that defines the node whose label begins with this line, and its id.
std::string idOf(const std::string& dot, const std::string& name, size_t from = 0) {
  const size_t label = dot.find("[label=\"" + name + "\\n", from);
  if (label == std::string::npos) FAIL("no node " << name);
  const size_t begin = dot.rfind('\n', label) + 1;
  return dot.substr(dot.find_first_not_of(' ', begin), label - dot.find_first_not_of(' ', begin) - 1);
}

TEST_CASE("entries are clusters of nodes and families, with tensors and events between them") {
  const std::string dot = formatDot(buildMoeProgram(shape()));
  CHECK(dot.starts_with("digraph \""));
  CHECK(std::count(dot.begin(), dot.end(), '{') == std::count(dot.begin(), dot.end(), '}'));
  CHECK_THAT(dot, Contains("label=\"entry forward\"") && Contains("label=\"entry backward\""));
  CHECK_THAT(dot, Contains("up_proj\\ngmm\"") && Contains("up_proj\\nrows by 16\\n3 tiles of 16\""));
  CHECK_THAT(dot, Contains("[label=\"gate_up\"]"));
  CHECK_THAT(dot, Contains("[label=\"act\", color=gray"));  // saved: from one entry to the other
}

TEST_CASE("wide events are dashed and slot-local ones are not") {
  const std::string dot = formatDot(buildMoeProgram(shape()));
  const size_t families = dot.find("label=\"families\"");
  const auto family = [&](const char* name) { return idOf(dot, name, families); };
  CHECK_THAT(dot, Contains(family("dispatch") + " -> " + family("up_proj") +
                           " [label=\"rows_arrived\", style=dashed, color=blue];"));
  CHECK_THAT(dot, Contains(family("up_proj") + " -> " + family("swiglu") + " [label=\"up_proj_done\"];"));
  CHECK_THAT(dot, Contains(family("down_proj") + " -> " + family("combine.return") +
                           " [label=\"down_proj_done\", style=dashed];"));
}

TEST_CASE("names are quoted, whatever is in them") {
  TaskProgram program = buildMoeProgram(shape());
  program.families[0].name = "a\"b\\";
  CHECK_THAT(formatDot(program), Contains("label=\"a\\\"b\\\\\\nsends"));
}

}  // namespace
}  // namespace sluice
