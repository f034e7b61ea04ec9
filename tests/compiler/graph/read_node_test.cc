#include <catch2/catch.hpp>

#include "tests/compiler/graph/graph_text.h"

namespace sluice {
namespace {

using testing::edited;
using testing::errorAtText;
using testing::errorOf;
using testing::placeInText;
using testing::smallGraph;

// `message` with its notes.
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
  const std::string ir = testing::irOf(smallGraph());
  size_t at = 0;
  for (const char* node : {"moe.route", "moe.dispatch", "\"up_proj\"", "\"down_proj\"", "moe.combine"}) {
    INFO(node << " in " << ir);
    at = ir.find(node, at);
    REQUIRE(at != std::string::npos);
  }
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

TEST_CASE("a tensor that two entries produce is an error at the second one") {
  std::string text = withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\"");
  text = edited(edited(text, "{\"product\": \"out2\"}", "{\"product\": \"out\"}"), "{\"rows\": \"out2\"",
                "{\"rows\": \"out\"");
  text = edited(text, "    \"out2\": {\"type\": \"BF16\", \"shape\": [\"R\", \"hidden\"]},\n", "");
  expectError(text,
              "{\"name\": \"down_proj\", \"op\": \"gmm\", \"inputs\": {\"rows\": \"mid\", \"weight\": "
              "\"down\"}, \"outputs\": {\"product\": \"out\"}},\n       {",
              "tensor 'out' is defined twice\n" + placeInText(text, "{\"name\": \"down_proj\"") +
                  ": note: it is first defined here");
}

TEST_CASE("every tensor is used") {
  expectError(edited("\"y\": {", "\"z\": {\"type\": \"routing\"},\n    \"y\": {"), "\"z\"",
              "tensor 'z' is used by no node and is no output");
}

TEST_CASE("outputs and what is saved come from a node, and go to one of the two") {
  expectError(edited("\"outputs\": [\"y\"]", "\"outputs\": [\"y\", \"x\"]"), "\"x\"]",
              "tensor 'x' is not produced by a node of entry 'run'");
  expectError(edited("\"outputs\": [\"y\"]", "\"save\": [\"x\"], \"outputs\": [\"y\"]"),
              "\"x\"], \"outputs\"", "tensor 'x' is not produced by a node of entry 'run'");
  std::string text = edited("\"outputs\": [\"y\"]", "\"save\": [\"y\"], \"outputs\": [\"y\"]");
  expectError(text, "\"y\"], \"outputs\"",
              "tensor 'y' is an output or saved twice\n" + placeInText(text, "\"y\"]\n") +
                  ": note: it also goes here");
  text = edited("\"outputs\": [\"y\"]", "\"outputs\": [\"y\", \"y\"]");
  expectError(text, "\"y\"]",
              "tensor 'y' is an output or saved twice\n" + placeInText(text, "\"y\", \"y\"]") +
                  ": note: it also goes here");
}

TEST_CASE("names of nodes and entries are unique") {
  std::string text = edited("\"name\": \"up_proj\"", "\"name\": \"route\"");
  expectError(text, "{\"name\": \"route\", \"op\": \"gmm\"",
              "node 'route' is defined twice in entry 'run'\n" +
                  placeInText(text, "{\"name\": \"route\", \"op\": \"route\"") +
                  ": note: it is first defined here");
  text = edited(withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\""), "\"name\": \"again\"",
                "\"name\": \"run\"");
  expectError(text, "{\"name\": \"run\",",
              "redefinition of symbol named 'run'\n" + placeInText(text, "{\n      \"name\": \"run\"") +
                  ": note: see existing symbol definition here");
}

TEST_CASE("a cycle is named from its first node in the direction of the data") {
  // down_proj reads the output of combine's neighbour: mid <- up_proj <- out <- down_proj.
  expectError(edited("{\"rows\": \"rows\", \"weight\": \"up\"}", "{\"rows\": \"out\", \"weight\": \"up\"}"),
              "{\"name\": \"down_proj\"", "nodes form a cycle: 'down_proj' -> 'up_proj' -> 'down_proj'");
  expectError(edited("{\"rows\": \"rows\", \"weight\": \"up\"}", "{\"rows\": \"mid\", \"weight\": \"up\"}"),
              "{\"name\": \"up_proj\"", "nodes form a cycle: 'up_proj' -> 'up_proj'");
}

TEST_CASE("entries read what entries they run after have saved") {
  CHECK(errorOf(withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\"")) == "no error");
  std::string text = withSecondEntry("", "\"mid\", \"routing\"");
  expectError(text, "\"mid\", \"routing\"]",
              "tensor 'mid' is not saved by an entry that entry 'again' runs after");
  text = withSecondEntry("\"after\": \"walk\",", "\"mid\", \"routing\"");
  expectError(text, "{\"name\": \"again\"", "entry 'again' runs after 'walk', which is not an earlier entry");
  text = withSecondEntry("\"after\": \"again\",", "\"mid\", \"routing\"");
  expectError(text, "{\"name\": \"again\"",
              "entry 'again' runs after 'again', which is not an earlier entry");
  text = withSecondEntry("\"after\": \"run\",", "\"mid\", \"routing\", \"rows\"");
  expectError(text, "\"rows\"],\n     \"nodes\"",
              "tensor 'rows' is not saved by an entry that entry 'again' runs after");
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
