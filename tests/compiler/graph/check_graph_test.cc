#include <catch2/catch.hpp>

#include "compiler/graph/read_graph.h"
#include "tests/compiler/graph/graph_text.h"

namespace sluice {
namespace {

using testing::edited;
using testing::errorAtText;
using testing::errorOf;
using testing::smallGraph;

void expectError(const std::string& text, std::string_view needle, std::string_view message) {
  CHECK(errorOf(text) == errorAtText(text, needle, message));
}

// smallGraph() with a second entry that reads `saved` and, if not empty, runs after the first.
std::string withSecondEntry(std::string_view after, std::string_view saved) {
  std::string text =
      edited("\"outputs\": [\"y\"]\n    }",
             "\"save\": [\"routing\", \"mid\"], \"outputs\": [\"y\"]\n    },\n    "
             "{\"name\": \"again\", AFTER \"inputs\": [\"down\"], \"saved\": [SAVED],\n     \"nodes\": [\n"
             "       {\"name\": \"down_proj\", \"op\": \"gmm\", \"inputs\": {\"rows\": \"mid\", \"weight\": "
             "\"down\"},"
             " \"outputs\": {\"product\": \"out2\"}},\n"
             "       {\"name\": \"combine\", \"op\": \"combine\", \"inputs\": {\"rows\": \"out2\", "
             "\"routing\": \"routing\"},"
             " \"outputs\": {\"tokens\": \"y2\"}}],\n     \"outputs\": [\"y2\"]}");
  text = edited(text, "\"y\": {",
                "\"out2\": {\"type\": \"BF16\", \"shape\": [\"R\", \"hidden\"]},\n    "
                "\"y2\": {\"type\": \"BF16\", \"shape\": [\"T\", \"hidden\"]},\n    \"y\": {");
  return edited(edited(text, "AFTER", after), "SAVED", saved);
}

TEST_CASE("nodes are sorted, producers first, else as in the file") {
  const Expected<Graph> graph = readGraphText(smallGraph(), "g.json", {});
  REQUIRE(graph.ok());
  std::string order;
  for (const GraphNode& node : graph->entries[0].nodes) order += node.name + " ";
  CHECK(order == "route dispatch up_proj down_proj combine ");
}

TEST_CASE("a tensor that is used but never produced is an error at its use") {
  expectError(edited("\"inputs\": [\"x\", ", "\"inputs\": ["), "\"x\", \"routing\"",
              "node 'dispatch' uses tensor 'x', which is not produced in entry 'run' and is neither an input "
              "nor saved");
}

TEST_CASE("a tensor is defined once") {
  expectError(
      edited("\"outputs\": {\"rows\": \"rows\"}", "\"outputs\": {\"rows\": \"mid\"}"),
      "\"mid\"}},\n        {\"name\": \"combine\"",
      "tensor 'mid' is produced by node 'up_proj', but is already produced by node 'dispatch' (line 27)");
  expectError(edited("\"outputs\": {\"product\": \"out\"}", "\"outputs\": {\"product\": \"x\"}"), "\"x\"}}",
              "tensor 'x' is produced by node 'down_proj', but is already an input of entry 'run' (line 23)");
}

TEST_CASE("every tensor is used") {
  expectError(edited("\"y\": {", "\"z\": {\"type\": \"routing\"},\n    \"y\": {"), "\"z\"",
              "tensor 'z' is used by no node and is no output");
}

TEST_CASE("outputs and what is saved come from a node, and go to one of the two") {
  expectError(edited("\"outputs\": [\"y\"]", "\"outputs\": [\"y\", \"x\"]"), "\"x\"]",
              "tensor 'x' is an output, but no node of entry 'run' produces it");
  expectError(edited("\"outputs\": [\"y\"]", "\"save\": [\"x\"], \"outputs\": [\"y\"]"),
              "\"x\"], \"outputs\"", "tensor 'x' is saved, but no node of entry 'run' produces it");
  expectError(edited("\"outputs\": [\"y\"]", "\"save\": [\"y\"], \"outputs\": [\"y\"]"),
              "\"y\"], \"outputs\"", "tensor 'y' is saved and an output, expected one of them");
  expectError(edited("\"outputs\": [\"y\"]", "\"outputs\": [\"y\", \"y\"]"), "\"y\"]",
              "tensor 'y' is listed twice in 'outputs' of entry 'run'");
}

TEST_CASE("names of nodes and entries are unique") {
  expectError(edited("\"name\": \"up_proj\"", "\"name\": \"route\""), "{\"name\": \"route\", \"op\": \"gmm\"",
              "a second node 'route' in entry 'run', the first is in line 26");
  expectError(edited(withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\""), "\"name\": \"again\"",
                     "\"name\": \"run\""),
              "{\"name\": \"run\",", "a second entry 'run', the first is in line 23");
}

TEST_CASE("a cycle is named from its first node in the direction of the data") {
  // down_proj reads what combine's neighbour makes: mid <- up_proj <- out <- down_proj.
  expectError(edited("{\"rows\": \"rows\", \"weight\": \"up\"}", "{\"rows\": \"out\", \"weight\": \"up\"}"),
              "{\"name\": \"down_proj\"", "nodes form a cycle: 'down_proj' -> 'up_proj' -> 'down_proj'");
  expectError(edited("{\"rows\": \"rows\", \"weight\": \"up\"}", "{\"rows\": \"mid\", \"weight\": \"up\"}"),
              "{\"name\": \"up_proj\"", "nodes form a cycle: 'up_proj' -> 'up_proj'");
}

TEST_CASE("entries read what entries they run after have saved") {
  CHECK(errorOf(withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\"")) == "no error");
  std::string text = withSecondEntry("", "\"mid\", \"routing\"");
  expectError(text, "\"mid\", \"routing\"]", "tensor 'mid' is not saved by an entry that 'again' runs after");
  text = withSecondEntry("\"after\": \"walk\",", "\"mid\", \"routing\"");
  expectError(text, "{\"name\": \"again\"", "entry 'again' runs after 'walk', which is no earlier entry");
  text = withSecondEntry("\"after\": \"again\",", "\"mid\", \"routing\"");
  expectError(text, "{\"name\": \"again\"", "entry 'again' runs after 'again', which is no earlier entry");
  text = withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\", \"rows\"");
  expectError(text, "\"rows\"],\n     \"nodes\"",
              "tensor 'rows' is not saved by an entry that 'again' runs after");
}

TEST_CASE("a tensor of another entry is no tensor of this one") {
  const std::string text = withSecondEntry("\"after\": \"run\",", "\"routing\"");
  expectError(text, "\"mid\", \"weight\": \"down\"}, \"outputs\": {\"product\": \"out2\"}",
              "node 'down_proj' uses tensor 'mid', which is not produced in entry 'again' and is neither an "
              "input nor "
              "saved");
}

}  // namespace
}  // namespace sluice
