#include "compiler/export/export_graph.h"

#include <catch2/catch.hpp>

#include "compiler/export/graph_json.h"
#include "compiler/graph/read_graph.h"
#include "compiler/import/import.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

std::string printed(mlir::Operation* op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream);
  return text;
}

mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string& text, mlir::MLIRContext& context) {
  context.loadDialect<moe::MoeDialect>();
  return mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(&context, true));
}

// A graph without names for what only its nodes see, and with nodes before the tensors they give away.
constexpr const char* kUnnamed = R"(
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 8 symbols {hidden = 32 : i64} {
  moe.entry @run {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 64 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %routing) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w) split <rows, 32> : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %sum = moe.combine "combine"(%up, %routing) : (!moe.tensor<R x 64 x bf16>, !moe.routing) -> !moe.tensor<T x 64 x bf16>
    moe.output "y", %sum alias "out" : !moe.tensor<T x 64 x bf16>
  }
}
)";

TEST_CASE("import and export are each other's way back") {
  const char* path =
      GENERATE("graphs/moe_ffn/train.json", "graphs/moe_ffn/forward.json", "graphs/moe_ffn/backward.json");
  mlir::MLIRContext context;
  const Expected<Graph> graph = readGraph(path, {});
  REQUIRE(graph);
  const auto module = importGraph(*graph, context);
  const Expected<Graph> exported = exportGraph(*module, path);
  if (!exported) FAIL(exported.error().message);
  const Expected<Graph> read = readGraphText(printGraphJson(*exported), path, {});
  if (!read) FAIL(read.error().message);
  CHECK(printed(*importGraph(*read, context)) == printed(*module));
  // Where a node stands in the first file is known to the end.
  CHECK(exported->entries[0].nodes[1].pos == graph->entries[0].nodes[1].pos);
}

TEST_CASE("tensors without a name get one, and one that leaves has the name that it leaves under") {
  mlir::MLIRContext context;
  const auto module = parse(kUnnamed, context);
  REQUIRE(module);
  const Expected<Graph> exported = exportGraph(*module, "layer.mlir");
  if (!exported) FAIL(exported.error().message);
  const Expected<Graph> read = readGraphText(printGraphJson(*exported), "layer.json", {});
  if (!read) FAIL(read.error().message);
  const std::vector<GraphNode>& nodes = read->entries[0].nodes;
  CHECK(read->at(nodes[2].outputs[0].tensor).name == "up_0");
  CHECK(nodes[2].split == GraphSplit{GraphSpace::kRows, 32});
  CHECK(read->at(nodes[3].outputs[0].tensor).name == "y");
  CHECK(read->at(nodes[3].outputs[0].tensor).alias == "out");
  // From here on nothing changes.
  const auto again = importGraph(*read, context);
  const Expected<Graph> third = exportGraph(*again, "layer.json");
  REQUIRE(third);
  CHECK(printGraphJson(*third) == printGraphJson(*exported));
}

TEST_CASE("a reference that import did not write is read as far as it goes") {
  mlir::MLIRContext context;
  std::string text = kUnnamed;
  const std::string split = "split <rows, 32>";
  text.replace(text.find(split), split.size(),
               "{reference = {tiling = 3 : ui8, inputs = 4, outputs = [[\"y\", 7], [1], \"z\"], "
               "split = {rows = 99999999999999999999999 : i128}, core = 1.0}}");
  const auto module = parse(text, context);
  REQUIRE(module);
  const Expected<Graph> exported = exportGraph(*module, "layer.mlir");
  REQUIRE(exported);
  const ReferencePlan plan = *exported->entries[0].nodes[2].reference;
  CHECK(plan.tiling == 3);
  CHECK(plan.inputs.empty());
  CHECK(plan.outputs == ReferencePlan::Slots{{"y", 7}});
  CHECK(plan.split->rows == 0);
  CHECK(plan.core.empty());
}

TEST_CASE("what no graph file can say is an error with its place") {
  mlir::MLIRContext context;
  context.printOpOnDiagnostic(false);
  std::string text = kUnnamed;
  const std::string gmm = "moe.gmm \"up\"", product = "-> !moe.tensor<R x 64 x bf16>";
  text.replace(text.find(gmm), gmm.size(), "moe.gmm_activation \"up\" swiglu");
  text.replace(text.find(product), product.size(), "-> !moe.tensor<R x 32 x bf16>");
  const std::string combine = "(!moe.tensor<R x 64 x bf16>, !moe.routing) -> !moe.tensor<T x 64 x bf16>";
  text.replace(text.find(combine), combine.size(),
               "(!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>");
  const std::string output = "!moe.tensor<T x 64 x bf16>\n  }";
  text.replace(text.find(output), output.size(), "!moe.tensor<T x 32 x bf16>\n  }");
  const auto module = parse(text, context);
  REQUIRE(module);
  const Expected<Graph> exported = exportGraph(*module, "layer.mlir");
  REQUIRE_FALSE(exported);
  CHECK_THAT(
      exported.error().message,
      Contains("layer.mlir:9:11: error: node 'up' is a gmm_activation, which graph files do not have"));
  const Expected<Graph> none = exportGraph(*parse("module {}", context), "empty.mlir");
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, Contains("empty.mlir: error: has 0 moe.graph ops, expected one"));
}

}  // namespace
}  // namespace sluice
