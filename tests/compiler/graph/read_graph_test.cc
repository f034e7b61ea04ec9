#include "compiler/graph/read_graph.h"

#include <array>
#include <catch2/catch.hpp>

#include "tests/compiler/graph/graph_text.h"

namespace sluice {
namespace {

using testing::edited;
using testing::errorAtText;
using testing::errorOf;
using testing::smallGraph;
using Set = std::pair<std::string, int64_t>;

// Replaces `from` by `to` and expects `message` at `needle`.
void expectError(std::string_view from, std::string_view to, std::string_view needle,
                 std::string_view message) {
  const std::string text = edited(from, to);
  CHECK(errorOf(text) == errorAtText(text, needle, message));
}

// Whether `text` holds `part`.
void checkHolds(const std::string& text, std::string_view part) {
  INFO(text << "\nexpected: " << part);
  CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("a graph holds what the file says") {
  const std::array sets = {Set("ep", 4)};
  const std::string ir = testing::irOf(smallGraph(), {sets});
  checkHolds(
      ir,
      "moe.graph @small ranks = 4 experts = 8 top_k = 2 max_tokens = 128 symbols {ep = 4 : i64, hidden "
      "= 64 : i64}");
  checkHolds(ir, "%x = moe.input \"x\" : !moe.tensor<T x 64 x bf16>");
  checkHolds(ir, "%up = moe.input \"up\" : !moe.tensor<2 x 64 x 128 x bf16>");
  checkHolds(ir, "moe.dispatch \"dispatch\"(%x, %routing) split <rows, 64>");
}

TEST_CASE("a word that is a symbol's value names nodes and kinds") {
  const std::string text = edited(
      edited("\"hidden\": {",
             "\"f\": {\"default\": \"geglu\", \"one_of\": [\"swiglu\", \"geglu\"]},\n    \"hidden\": {"),
      "\"name\": \"combine\", \"op\"", "\"name\": \"f\", \"op\"");
  checkHolds(testing::irOf(text), "moe.combine \"geglu\"");
  const std::array<std::pair<std::string, std::string>, 1> words = {{{"f", "swiglu"}}};
  const std::string ir = testing::irOf(text, {.words = words});
  checkHolds(ir, "moe.combine \"swiglu\"");
  CHECK(ir.find("f =") == std::string::npos);  // only sizes are symbols of a program
  const std::string list =
      "the symbols are:\n  ep = 2 (1 to 8): ranks\n  f = geglu (swiglu, geglu)\n  hidden = 64 (0 to 1048576)";
  const std::array<std::pair<std::string, std::string>, 1> unknown = {{{"f", "relu"}}},
                                                           number = {{{"ep", "two"}}};
  CHECK(errorOf(text, {.words = unknown}) ==
        "g.json: error: symbol 'f' is set to 'relu', expected swiglu, geglu; " + list);
  CHECK(errorOf(text, {.words = number}) ==
        "g.json: error: symbol 'ep' is set to 'two', expected 1 to 8; " + list);
  const std::array sets = {Set("f", 1)};
  CHECK(errorOf(text, {sets}) == "g.json: error: symbol 'f' is set to 1, expected swiglu, geglu; " + list);
  std::string wrong = edited(text, "\"default\": \"geglu\"", "\"default\": \"relu\"");
  CHECK(errorOf(wrong) ==
        errorAtText(wrong, "\"relu\"", "the default of symbol 'f' is 'relu', which is none of 'one_of'"));
  wrong = edited(text, "\"top_k\": 2", "\"top_k\": \"f\"");
  CHECK(errorOf(wrong) == errorAtText(wrong, "\"f\", \"max_tokens\"",
                                      "limit 'top_k' ('f'): symbol 'f' is a word, expected a number"));
}

TEST_CASE("syntax errors have a position") {
  const std::string text = edited("\"name\": \"small\",", "\"name\": \"small\"");
  CHECK(errorOf(text).starts_with("g.json:4:"));
}

TEST_CASE("fields that are unknown, missing or of a wrong kind are errors where they stand") {
  expectError("\"x\": {", "\"x\": {\"alias\": \"src\", ", "\"alias\"",
              "tensor 'x' has an unknown field 'alias', expected doc, type, shape, if, parallel");
  expectError("\"name\": \"small\",\n", "", "{", "the graph has no field 'name'");
  expectError("\"name\": \"small\"", "\"name\": 7", "7",
              "field 'name' of the graph is a whole number, expected a string");
  expectError(
      "\"default\": 2", "\"default\": 2.5", "2.5",
      "field 'default' of symbol 'ep' is a number with a fraction or exponent, expected a whole number");
  expectError("\"entries\": [", "\"entries\": {}, \"more\": [", "{}",
              "field 'entries' of the graph is an object, expected an array");
  expectError("\"format\": 1", "\"format\": 2", "2", "format is 2, expected 1");
  expectError("\"op\": \"route\", ", "", "{\"name\": \"route\"", "node 'route' has no field 'op'");
  expectError(
      "\"op\": \"route\"", "\"op\": \"route\", \"transpose\": true", "\"transpose\"",
      "node 'route' has an unknown field 'transpose', expected name, doc, op, inputs, outputs, split");
  CHECK(errorOf("[]") == "g.json:1:1: error: the graph is an array, expected an object");
}

TEST_CASE("names are checked where they are given") {
  expectError(
      "\"small\"", "\"a b\"", "\"a b\"",
      "field 'name' of the graph is 'a b', expected a name: a letter or underscore, then letters, digits and "
      "underscores, at most 64 characters");
  expectError("\"hidden\": {", "\"R\": {", "\"R\": {", "symbol 'R' has the name of a run-time extent");
}

TEST_CASE("symbols keep their range") {
  expectError("\"default\": 2,", "\"default\": 9,", "9, \"min\"",
              "the default of symbol 'ep' is 9, expected 1 to 8");
  const std::string list = "the symbols are:\n  ep = 2 (1 to 8): ranks\n  hidden = 64 (0 to 1048576)";
  CHECK(errorOf(smallGraph(), {std::array{Set("tp", 1)}}) == "g.json: error: unknown symbol 'tp', " + list);
  CHECK(errorOf(smallGraph(), {std::array{Set("ep", 16)}}) ==
        "g.json: error: symbol 'ep' is set to 16, expected 1 to 8; " + list);
  expectError("\"ranks\": \"ep\"", "\"ranks\": \"tp\"", "\"tp\"",
              "limit 'ranks' ('tp'): unknown symbol 'tp', " + list);
}

TEST_CASE("sizes keep their limits") {
  expectError("\"top_k\": 2", "\"top_k\": 9", "{\"ranks\"", "top_k is 9, but there are only 8 experts");
  expectError("\"top_k\": 2", "\"top_k\": 65", "65", "limit 'top_k' is 65, expected 1 to 64");
  expectError("\"8/ep\"", "\"7/ep\"", "\"7/ep\"",
              "dimension 0 of tensor 'up' ('7/ep'): 7 is not divisible by 2");
  CHECK(errorOf(smallGraph(), {std::array{Set("hidden", 0)}}) ==
        errorAtText(smallGraph(), "\"hidden\"]}",
                    "dimension 1 of tensor 'x' ('hidden') is 0, expected 1 to 1048576"));
  CHECK(errorOf(smallGraph(), {std::array{Set("hidden", 1 << 20)}})
            .find("dimension 2 of tensor 'up' ('2*hidden') is 2097152, expected 1 to 1048576") !=
        std::string::npos);
}

TEST_CASE("the experts of a rank are a number where all ranks own as many, else an extent") {
  const std::string text = edited(edited("\"8/ep\"", "\"E\""), "\"8/ep\"", "\"E\"");
  const auto irOf = [&](int64_t ranks) {
    const std::array sets = {Set("ep", ranks)};
    return testing::irOf(text, {sets});
  };
  checkHolds(irOf(4), "!moe.tensor<2 x 64 x 128 x bf16>");
  for (const int64_t ranks : {3, 5}) checkHolds(irOf(ranks), "!moe.tensor<E x 64 x 128 x bf16>");
}

TEST_CASE("a number of experts that ranks do not divide is an error that names the extent") {
  CHECK(errorOf(smallGraph(), {std::array{Set("ep", 3)}}) ==
        errorAtText(smallGraph(), "\"8/ep\"",
                    "dimension 0 of tensor 'up' ('8/ep'): 8 is not divisible by 3; the experts of a rank are "
                    "\"E\""));
  expectError("[\"T\", 2]", "[2, \"E\"]", "\"E\"]",
              "dimension 1 of tensor 'ids' is E, which only the first dimension may be");
  expectError("\"hidden\": {", "\"E\": {", "\"E\": {", "symbol 'E' has the name of a run-time extent");
}

TEST_CASE("types and shapes of tensors are checked") {
  expectError(
      "\"I32\"", "\"I64\"", "\"I64\"",
      "tensor 'ids' has type 'I64', expected BF16, F16, F32, I32, I8, U8, F8_E4M3, F8_E8M0 or routing");
  expectError("[\"T\", 2]", "[2, \"T\"]", "\"T\"]",
              "dimension 1 of tensor 'ids' is T, which only the first dimension may be");
  expectError("[\"T\", 2]", "[]", "[]", "tensor 'ids' has 0 dimensions, expected 1 to 3");
  expectError("[\"T\", 2]", "[\"T\", true]", "true",
              "dimension 1 of tensor 'ids' is true or false, expected a whole number or a string such as "
              "\"2*hidden\"");
}

TEST_CASE("ops and their operands are checked") {
  expectError("\"op\": \"route\"", "\"op\": \"rout\"", "\"rout\"",
              "node 'route' has an unknown op 'rout', expected route, dispatch, dispatch_codes, "
              "combine, gmm, gmm_weight_grad, activation, activation_grad, add, scale, column_sum, row_dot, "
              "quantize, amax, encode");
  expectError(
      "{\"expert_ids\": \"ids\"}", "{\"ids\": \"ids\"}", "\"ids\": \"ids\"}",
      "unknown 'ids' in the inputs of node 'route', expected expert_ids (optional), placement (optional)");
  expectError("{\"tokens\": \"x\", ", "{", "{\"routing\": \"routing\"},\n         \"outputs\": {\"rows\"",
              "inputs of node 'dispatch' lack 'tokens', expected tokens, routing, weights (optional)");
  expectError(
      "\"tokens\": \"x\"", "\"tokens\": \"x\", \"mask\": \"x\"", "\"mask\"",
      "unknown 'mask' in the inputs of node 'dispatch', expected tokens, routing, weights (optional)");
  expectError("\"tokens\": \"x\"", "\"tokens\": \"z\"", "\"z\"",
              "'tokens' of the inputs of node 'dispatch' is 'z', but there is no such tensor in \"tensors\"");
  expectError(
      "\"tokens\": \"x\"", "\"tokens\": \"routing\"", "\"routing\", \"routing\"",
      "'tokens' of the inputs of node 'dispatch' is 'routing', which is a routing, expected a tensor");
  expectError("{\"space\": \"rows\"", "{\"space\": \"cols\"", "\"cols\"",
              "the split of node 'dispatch' has space 'cols', expected tokens, rows or experts");
  expectError("\"size\": 64", "\"size\": -1", "-1",
              "the size of the split of node 'dispatch' is -1, expected 0 to 4194304");
  expectError("\"size\": 64}", "\"size\": 64}, \"reference\": {}", "\"reference\"",
              "node 'dispatch' has an unknown field 'reference', expected name, doc, op, inputs, "
              "outputs, split");
}

TEST_CASE("factors are numbers, of products and of scale, which has to have one") {
  const auto irWith = [](std::string_view field) {
    return testing::irOf(
        edited("\"op\": \"gmm\", \"inputs\": {\"rows\": \"mid\"",
               "\"op\": \"gmm\", " + std::string(field) + " \"inputs\": {\"rows\": \"mid\""));
  };
  CHECK(irWith("").find("alpha") == std::string::npos);
  checkHolds(irWith("\"alpha\": 2,"), "alpha 2.0");
  checkHolds(irWith("\"alpha\": -0.125,"), "alpha -1.250000e-01");
  checkHolds(irWith("\"alpha\": 1e-3,"), "alpha 1.000000e-03");
  expectError("\"op\": \"gmm\"", "\"op\": \"gmm\", \"alpha\": \"half\"", "\"half\"",
              "the alpha of node 'down_proj' is a string, expected a number");
  expectError(
      "\"op\": \"gmm\", \"inputs\": {\"rows\": \"rows\", \"weight\": \"up\"}, \"outputs\": {\"product\"",
      "\"op\": \"scale\", \"inputs\": {\"value\": \"rows\"}, \"outputs\": {\"scaled\"",
      "{\"name\": \"up_proj\"", "node 'up_proj' has no field 'alpha'");
  expectError("\"op\": \"route\"", "\"op\": \"route\", \"alpha\": 2", "\"alpha\"",
              "node 'route' has an unknown field 'alpha', expected name, doc, op, inputs, outputs, split");
}

TEST_CASE("without expert ids, a route sends every token to every expert, which top_k says, too") {
  std::string text = edited(edited("{\"expert_ids\": \"ids\"}", "{}"), "\"x\", \"ids\", ", "\"x\", ");
  text = edited(text, "    \"ids\": {\"type\": \"I32\", \"shape\": [\"T\", 2]},\n", "");
  CHECK(errorOf(text) ==
        errorAtText(text, "{\"name\": \"route\"",
                    "node 'route' has no ids, so that every token goes to every expert, but top_k "
                    "is 2 of 8 experts"));
  checkHolds(testing::irOf(edited(text, "\"top_k\": 2", "\"top_k\": 8")), "moe.route \"route\" {");
}

// smallGraph() with a symbol `spare` of this value and a placement that exists if it is not 0.
std::string withSpare(int spare, const std::string& placement = R"("shape": ["8 + spare"], "if": "spare")") {
  std::string text = edited("\"hidden\": {", "\"spare\": {\"default\": " + std::to_string(spare) +
                                                 ", \"min\": 0, \"max\": 9},\n    \"hidden\": {");
  text = edited(text, "\"experts\": 8,", "\"experts\": 8, \"spare\": \"spare\",");
  text = edited(text, "\"up\": {", "\"places\": {\"type\": \"I32\", " + placement + "},\n    \"up\": {");
  text = edited(text, "\"ids\", \"up\"", "\"ids\", \"places\", \"up\"");
  text = edited(text, "\"expert_ids\": \"ids\"", "\"expert_ids\": \"ids\", \"placement\": \"places\"");
  return edited(edited(text, "\"8/ep\"", "\"E\""), "\"8/ep\"", "\"E\"");
}

TEST_CASE("a tensor whose `if` is 0 does not exist") {
  const std::string with = testing::irOf(withSpare(4)), without = testing::irOf(withSpare(0));
  checkHolds(with, "experts = 12 spare = 4 top_k = 2");
  checkHolds(with, "moe.input \"places\" : !moe.tensor<12 x i32>");
  checkHolds(with, "moe.route \"route\"(%ids) placement(%places)");
  checkHolds(with, "%up = moe.input \"up\" : !moe.tensor<6 x 64 x 128 x bf16>");
  checkHolds(without, "experts = 8 top_k = 2");
  checkHolds(without, "moe.route \"route\"(%ids) {");
  CHECK(without.find("places") == std::string::npos);
}

TEST_CASE("a graph with spare places has a placement, and others may have one") {
  std::string text = edited(withSpare(4), ", \"if\": \"spare\"", "");
  checkHolds(testing::irOf(text), "placement(%places)");
  text = edited(text, "\"default\": 4", "\"default\": 0");
  checkHolds(testing::irOf(text), "placement(%places)");
  text = edited(withSpare(4), "\"if\": \"spare\"", "\"if\": \"0*spare\"");
  CHECK(errorOf(text) == errorAtText(text, "{\"name\": \"route\"",
                                     "node 'route' has no placement, but the graph has 4 spare places"));
  text = withSpare(4, R"("shape": ["7 + spare"], "if": "spare")");
  checkHolds(errorOf(text),
             "placement is [11 x i32], expected [places x i32] with places = 12 (experts + spare)");
  text = edited(withSpare(4), "\"spare\": \"spare\"", "\"spare\": 65530");
  CHECK(errorOf(text) == errorAtText(text, "65530", "limit 'spare' is 65530, expected 0 to 65528"));
  text = edited(withSpare(4), "\"if\": \"spare\"", "\"if\": \"space\"");
  checkHolds(errorOf(text), "'if' of tensor 'places' ('space'): unknown symbol 'space'");
  text = edited(withSpare(0), "\"weight\": \"up\"", "\"weight\": \"places\"");
  checkHolds(errorOf(text), "inputs of node 'up_proj' lack 'weight'");
}

// smallGraph() in groups of two ranks; its rows `out` are also an output, whose field `parallel` is given.
std::string withOutputOfRows(std::string_view parallel) {
  std::string text = edited("\"ranks\": \"ep\",", "\"ranks\": \"ep\", \"tp\": 2,");
  text = edited(edited(text, "8/ep", "8"), "8/ep", "8");
  text = edited(text, "\"outputs\": [\"y\"]", "\"outputs\": [\"y\", \"out\"]");
  return edited(text, "\"out\": {", "\"out\": {" + std::string(parallel));
}

TEST_CASE("an output of rows may declare which part of it a rank has; other tensors of nodes may not") {
  checkHolds(testing::irOf(withOutputOfRows("")), "moe.output \"out\", %out : ");
  checkHolds(testing::irOf(withOutputOfRows("\"parallel\": \"columns\", ")),
             "moe.output \"out\", %out shard  columns : ");
  std::string text = edited(withOutputOfRows(""), "\"mid\": {", "\"mid\": {\"parallel\": \"columns\", ");
  CHECK(errorOf(text) ==
        errorAtText(text, "\"mid\"",
                    "tensor 'mid' has 'parallel', which only inputs and outputs of rows have: that "
                    "of other tensors follows from it"));
  text = edited(withOutputOfRows(""), "\"y\": {", "\"y\": {\"parallel\": \"columns\", ");
  CHECK(errorOf(text).find("'y' has 'parallel', which only inputs and outputs of rows have") !=
        std::string::npos);
  text = withOutputOfRows("\"parallel\": \"rows\", ");
  CHECK(errorOf(text) == errorAtText(text, "\"out\"]",
                                     "output 'out' of rows declares to be rows, expected whole, "
                                     "columns or gate_up_columns"));
  text = withOutputOfRows("\"parallel\": \"partial\", ");
  CHECK(errorOf(text).find("tensor 'out' is partial, which no input or output is") != std::string::npos);
}

TEST_CASE("a file that cannot be read is named") {
  mlir::MLIRContext context;
  CHECK(readGraph("/nonexistent/g.json", {}, context).error().message ==
        "/nonexistent/g.json: error: cannot read: No such file or directory");
  CHECK(readGraph("/", {}, context).error().message == "/: error: cannot read: Is a directory");
}

}  // namespace
}  // namespace sluice
