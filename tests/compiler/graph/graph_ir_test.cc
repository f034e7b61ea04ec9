#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "compiler/dialect/diagnostics.h"
#include "compiler/dialect/moe.h"
#include "compiler/graph/read_graph.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/Parser/Parser.h"
#include "tests/compiler/graph/graph_text.h"

namespace sluice {
namespace {

using testing::edited;
using testing::errorAtText;
using testing::errorOf;
using testing::smallGraph;

std::string irOnFourRanks(const std::string& name) {
  const std::array<std::pair<std::string, int64_t>, 1> sets = {{{"ep", 4}}};
  return testing::irOfFile(name, {sets});
}

TEST_CASE("the training graph is read with all its parts") {
  const std::string text = irOnFourRanks("train.json");
  for (const char* line : {
           "moe.graph @moe_ffn_train ranks = 4 experts = 64 top_k = 8 max_tokens = 4096 symbols {ep = 4 : "
           "i64,",
           "moe.entry @forward {",
           "%gate_up_weight = moe.input \"gate_up_weight\" : !moe.tensor<16 x 2048 x 1536 x bf16>",
           "%routing = moe.route \"route\"(%expert_ids) {tensors = [\"routing\"]}",
           "%y = moe.combine \"combine\"(%down_out, %routing) weights(%expert_weights) {",
           "moe.output \"y\", %y : !moe.tensor<T x 2048 x bf16>",
           "moe.save \"rows_x\", %rows_x : !moe.tensor<R x 2048 x bf16>",
           "moe.save \"routing\", %routing : !moe.routing",
           "moe.entry @backward after @forward {",
           "%routing = moe.saved \"routing\" : !moe.routing",
           "%rows_dy, %row_weights = moe.dispatch \"dispatch\"(%dy, %routing) weights(%expert_weights) {",
           "%act_grad_y = moe.gmm \"act_grad\"(%rows_dy, %down_weight) transpose {tensors = "
           "[\"act_grad_y\"]}",
           "moe.gmm_weight_grad \"down_weight_grad\"(%act, %rows_dy) scale(%row_weights) {"
           "tensors",
           "moe.gmm_weight_grad \"gate_up_weight_grad\"(%rows_x, %gate_up_grad) {tensors",
           "%dx, %d_expert_weights = moe.combine \"combine\"(%rows_dx, %routing) scalars(%row_weight_grad) {",
           "moe.output \"gate_up_weight_grad\", %gate_up_weight_grad : !moe.tensor<16 x 2048 x 1536 x f32>",
       }) {
    INFO(line);
    CHECK(text.find(line) != std::string::npos);
  }
}

void expectParsesAgain(const std::string& ir) {
  mlir::MLIRContext context;
  context.loadDialect<moe::MoeDialect>();
  const auto again = mlir::parseSourceString<mlir::ModuleOp>(ir, &context);
  REQUIRE(again);
  std::string text;
  llvm::raw_string_ostream stream(text);
  again.get().print(stream);
  CHECK(text == ir);
}

TEST_CASE("what is read parses again to the same") {
  for (const char* name : {"forward.json", "backward.json", "train.json", "shared_expert.json", "lora.json",
                           "two_gmms.json", "biased.json"}) {
    INFO(name);
    expectParsesAgain(irOnFourRanks(name));
  }
  const std::array halves = {std::pair<std::string, int64_t>("tp", 2)};
  for (const char* name : {"column_parallel", "column_parallel_bias", "row_parallel", "row_parallel_bias"}) {
    INFO(name);
    expectParsesAgain(testing::irOfFile("../linear/" + std::string(name) + ".json", {halves}));
  }
}

TEST_CASE("every op knows its place in the file") {
  mlir::MLIRContext context;
  const auto module = readGraphText(smallGraph(), "g.json", {}, context);
  REQUIRE(module.ok());
  std::set<std::string> places;
  module->get().walk([&](mlir::Operation* op) { places.insert(formatLocation(op->getLoc())); });
  for (const char* text : {"{\n  \"format\"", "{\n      \"name\": \"run\"", "\"up\", \"down\"]",
                           "{\"name\": \"dispatch\"", "{\"name\": \"down_proj\"", "\"y\"]"})
    CHECK(places.contains(testing::placeInText(smallGraph(), text)));
  CHECK_FALSE(places.contains(""));
  CHECK(places.size() == 1 + 1 + 4 + 5 + 1);  // graph, entry, inputs, nodes, output
}

TEST_CASE("shapes and types that do not fit are errors at the node's place") {
  std::string text = edited("\"weight\": \"up\"", "\"weight\": \"down\"");
  text = edited(text, "\"weight\": \"down\"}, \"outputs\": {\"product\": \"out\"}",
                "\"weight\": \"up\"}, \"outputs\": {\"product\": \"out\"}");
  CHECK(errorOf(text) ==
        errorAtText(text, "{\"name\": \"up_proj\"",
                    "node 'up_proj': weight is [4 x 128 x 64 x bf16], expected [E x C x N x bf16 or "
                    "i8 or ui8 or f8E4M3FN] with "
                    "E = 4 (experts / ranks), C = 64 (rows)"));
  text = edited("\"ids\": {\"type\": \"I32\"", "\"ids\": {\"type\": \"F32\"");
  CHECK(errorOf(text) ==
        errorAtText(text, "{\"name\": \"route\"",
                    "node 'route': ids is [T x 2 x f32], expected [T x K x i32] with K = 2 (top_k)"));
}

TEST_CASE("an entry without a routing is an error at the entry's place") {
  std::string text =
      edited("\"inputs\": [\"x\", \"ids\", \"up\", \"down\"]", "\"inputs\": [\"mid\", \"down\"]");
  const size_t first = text.find("        {\"name\": \"route\""),
               last = text.find("\n      ],\n      \"outputs\"");
  text.erase(first - 2, last - first + 2);
  text = edited(text, "\"outputs\": [\"y\"]", "\"outputs\": [\"out\"]");
  for (const char* unused : {"x", "ids", "up", "rows", "y", "routing"}) {
    const size_t begin = text.find("    \"" + std::string(unused) + "\": {");
    text.erase(begin, text.find('\n', begin) - begin + 1);
  }
  const size_t comma = text.find("},\n  },\n  \"entries\"");
  if (comma != std::string::npos) text.erase(comma + 1, 1);
  CHECK(errorOf(text) == errorAtText(text, "{\n      \"name\": \"run\"",
                                     "entry 'run' has no routing, expected a route node or a saved routing"));
}

}  // namespace
}  // namespace sluice
