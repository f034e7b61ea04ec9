#include "compiler/import/import.h"

#include <array>
#include <catch2/catch.hpp>

#include "compiler/dialect/moe.h"
#include "compiler/graph/read_graph.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "tests/compiler/graph/graph_text.h"

namespace sluice {
namespace {

using testing::edited;
using testing::errorAtText;
using testing::smallGraph;

std::string print(mlir::ModuleOp module, bool locations = false) {
  std::string text;
  llvm::raw_string_ostream os(text);
  mlir::OpPrintingFlags flags;
  if (locations) flags.enableDebugInfo(true, true);
  module->print(os, flags);
  return text;
}

Graph readFile(const std::string& name) {
  const std::array<std::pair<std::string, int64_t>, 1> sets = {{{"ep", 4}}};
  Expected<Graph> graph = readGraph("graphs/moe_ffn/" + name, sets);
  INFO((graph ? "" : graph.error().message));
  REQUIRE(graph.ok());
  return *graph;
}

// The diagnostics of importing `text` as "g.json", one a line, or "no error".
std::string errorOf(const std::string& text) {
  const Expected<Graph> graph = readGraphText(text, "g.json", {});
  INFO((graph ? "" : graph.error().message));
  REQUIRE(graph.ok());
  mlir::MLIRContext context;
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic& diagnostic) {
    const auto at = mlir::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation());
    REQUIRE(at);
    message += at.getFilename().str() + ":" + std::to_string(at.getLine()) + ":" +
               std::to_string(at.getColumn()) + ": error: " + diagnostic.str();
    return mlir::success();
  });
  const mlir::OwningOpRef<mlir::ModuleOp> module = importGraph(*graph, context);
  CHECK(static_cast<bool>(module) == message.empty());
  return message.empty() ? "no error" : message;
}

TEST_CASE("the training graph is imported with all its parts") {
  mlir::MLIRContext context;
  const mlir::OwningOpRef<mlir::ModuleOp> module = importGraph(readFile("train.json"), context);
  REQUIRE(module);
  const std::string text = print(*module);
  for (const char* line : {
           "moe.graph @moe_ffn_train ranks = 4 experts = 64 top_k = 8 max_tokens = 4096 symbols {ep = 4 : "
           "i64,",
           "moe.entry @forward {",
           "%gate_up_weight = moe.input \"gate_up_weight\" : !moe.tensor<16 x 2048 x 1536 x bf16>",
           "%routing = moe.route \"route\"(%expert_ids) {tensors = [\"routing\"]}",
           "%y = moe.combine \"combine\"(%down_out, %routing) weights(%expert_weights) {",
           "moe.output \"y\", %y : !moe.tensor<T x 2048 x bf16>",
           "moe.save \"rows_x\", %rows_x alias \"w2_grad_x1\" : !moe.tensor<R x 2048 x bf16>",
           "moe.save \"routing\", %routing : !moe.routing",
           "moe.entry @backward after @forward {",
           "%routing = moe.saved \"routing\" : !moe.routing",
           "%rows_dy, %row_weights = moe.dispatch \"dispatch\"(%dy, %routing) weights(%expert_weights) {",
           "%act_grad_y = moe.gmm \"act_grad\"(%rows_dy, %down_weight) transpose {alias = \"act_grad\", "
           "reference = {core = \"cube\", inputs = [[\"target\", 0], [\"weight\", 7], [\"glist\", 19]], "
           "outputs = [[\"y\", 8]], split = {dim = 0 : i64, inputs = [0], rows = 4096 : i64}, tiling = 20 : "
           "i64}, "
           "tensors = [\"act_grad_y\"]}",
           "moe.gmm_weight_grad \"down_weight_grad\"(%act, %rows_dy) scale(%row_weights) {alias = "
           "\"w1_grad\"",
           "moe.gmm_weight_grad \"gate_up_weight_grad\"(%rows_x, %gate_up_grad) {alias = \"w2_grad\", "
           "reference = {after = \"gate_grad\", core = \"cube\",",
           "%dx, %d_expert_weights = moe.combine \"combine\"(%rows_dx, %routing) scalars(%row_weight_grad) {",
           "moe.output \"gate_up_weight_grad\", %gate_up_weight_grad : !moe.tensor<16 x 2048 x 1536 x f32>",
       }) {
    INFO(line);
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("what is imported parses again to the same") {
  for (const char* name : {"forward.json", "backward.json", "train.json", "shared_expert.json", "lora.json",
                           "two_gmms.json", "geglu.json", "reglu.json", "swiglu_clamp.json"}) {
    INFO(name);
    mlir::MLIRContext context;
    const mlir::OwningOpRef<mlir::ModuleOp> module = importGraph(readFile(name), context);
    REQUIRE(module);
    const auto again = mlir::parseSourceString<mlir::ModuleOp>(print(*module), &context);
    REQUIRE(again);
    CHECK(print(*again) == print(*module));
  }
}

TEST_CASE("every op knows its place in the file") {
  const Graph graph = readFile("backward.json");
  mlir::MLIRContext context;
  const mlir::OwningOpRef<mlir::ModuleOp> module = importGraph(graph, context);
  REQUIRE(module);
  (*module)->walk([](mlir::Operation* op) {
    const auto at = mlir::dyn_cast<mlir::FileLineColLoc>(op->getLoc());
    REQUIRE(at);
    CHECK(at.getFilename() == "graphs/moe_ffn/backward.json");
  });
  size_t index = 0;
  (*module)->walk([&](moe::NodeOp node) {
    const auto at = mlir::cast<mlir::FileLineColLoc>(node.getLoc());
    const GraphNode& expected = graph.entries[0].nodes.at(index++);
    CHECK(node.getNode() == expected.name);
    CHECK(at.getLine() == static_cast<unsigned>(expected.pos.line));
    CHECK(at.getColumn() == static_cast<unsigned>(expected.pos.column));
  });
  CHECK(index == 8);
}

TEST_CASE("splits are imported") {
  const Expected<Graph> graph = readGraphText(smallGraph(), "g.json", {});
  REQUIRE(graph.ok());
  mlir::MLIRContext context;
  const mlir::OwningOpRef<mlir::ModuleOp> module = importGraph(*graph, context);
  REQUIRE(module);
  CHECK(print(*module).find("moe.dispatch \"dispatch\"(%x, %routing) split <rows, 64>") != std::string::npos);
}

TEST_CASE("experts that ranks own different numbers of are imported as an extent") {
  std::string text = edited("\"8/ep\", \"hidden\"", "\"E\", \"hidden\"");
  text = edited(text, "\"8/ep\"", "\"E\"");
  mlir::MLIRContext context;
  const std::vector<std::pair<std::string, int64_t>> sets = {{"ep", 3}};
  const Expected<Graph> uneven = readGraphText(text, "g.json", sets),
                        even = readGraphText(text, "g.json", {});
  REQUIRE(uneven.ok());
  REQUIRE(even.ok());
  const mlir::OwningOpRef<mlir::ModuleOp> first = importGraph(*uneven, context),
                                          second = importGraph(*even, context);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(print(*first).find("!moe.tensor<E x 64 x 128 x bf16>") != std::string::npos);
  CHECK(print(*second).find("!moe.tensor<4 x 64 x 128 x bf16>") != std::string::npos);
}

TEST_CASE("shapes and types that do not fit are errors at the node's place") {
  std::string text = edited("\"weight\": \"up\"", "\"weight\": \"down\"");
  text = edited(text, "\"weight\": \"down\"}, \"outputs\": {\"product\": \"out\"}",
                "\"weight\": \"up\"}, \"outputs\": {\"product\": \"out\"}");
  CHECK(errorOf(text) ==
        errorAtText(text, "{\"name\": \"up_proj\"",
                    "node 'up_proj': weight is [4 x 128 x 64 x bf16], expected [E x C x N x bf16] with "
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
