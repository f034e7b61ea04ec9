#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "compiler/export/graph_text.h"
#include "compiler/graph/read_graph.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/Parser/Parser.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;
using Module = mlir::OwningOpRef<mlir::ModuleOp>;
using Set = std::pair<std::string, int64_t>;

std::string irOf(const Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.get().print(stream);
  return text;
}

Expected<std::string> formatJson(const Module& module) {
  return printGraphJson(*module.get().getOps<moe::GraphOp>().begin(), "layer.mlir");
}

std::string goodJsonOf(const Module& module) {
  const Expected<std::string> text = formatJson(module);
  if (!text) FAIL(text.error().message);
  return *text;
}

class GraphJson {
 public:
  Module file(const std::string& name, SymbolSets sets = {}) {
    return good(readGraph("graphs/moe_ffn/" + name, sets, context_));
  }
  Module json(const std::string& text) { return good(readGraphText(text, "again.json", {}, context_)); }
  Module ir(const std::string& text) {
    context_.loadDialect<moe::MoeDialect>();
    Module module =
        mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(&context_, true), "layer.mlir");
    REQUIRE(module);
    return module;
  }

 private:
  static Module good(Expected<Module> module) {
    if (!module) FAIL(module.error().message);
    return std::move(*module);
  }

  mlir::MLIRContext context_;
};

// A graph whose internal tensors have no names, and in which nodes come before the tensors that they produce.
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
    moe.output "y", %sum : !moe.tensor<T x 64 x bf16>
  }
}
)";

std::string edited(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}

TEST_CASE("a graph file that was written reads to the same graph") {
  GraphJson graphs;
  const std::array even = {Set("ep", 4), Set("hidden", 96)}, uneven = {Set("ep", 3), Set("experts", 8)};
  for (const char* name : {"train.json", "forward.json", "backward.json", "shared_expert.json", "lora.json",
                           "two_gmms.json", "biased.json"}) {
    INFO(name);
    for (const SymbolSets sets : {SymbolSets{}, SymbolSets{even}, SymbolSets{uneven}}) {
      const Module graph = graphs.file(name, sets);
      CHECK(irOf(graphs.json(goodJsonOf(graph))) == irOf(graph));
    }
  }
  CHECK_THAT(goodJsonOf(graphs.file("train.json", {uneven})),
             Contains("\"gate_up_weight\": {\"type\":\"BF16\",\"shape\":[\"E\",2048"));
}

TEST_CASE("a route without ids, the parts of rows and biases are kept") {
  GraphJson graphs;
  const std::array halves = {Set("tp", 2)};
  for (const char* name : {"column_parallel", "row_parallel", "column_parallel_bias", "row_parallel_bias"}) {
    INFO(name);
    const Module graph = graphs.file("../linear/" + std::string(name) + ".json", {halves});
    CHECK(irOf(graphs.json(goodJsonOf(graph))) == irOf(graph));
  }
  const nlohmann::json column =
      nlohmann::json::parse(goodJsonOf(graphs.file("../linear/column_parallel.json", {halves})));
  CHECK(column["tensors"]["y"]["parallel"] == "columns");
  CHECK(column["entries"][0]["nodes"][0]["inputs"] == nlohmann::json::object());
  const nlohmann::json row =
      nlohmann::json::parse(goodJsonOf(graphs.file("../linear/row_parallel_bias.json", {halves})));
  CHECK(row["entries"][0]["nodes"][2]["inputs"] ==
        nlohmann::json{{"rows", "rows_y"}, {"routing", "routing"}, {"bias", "bias"}});
}

TEST_CASE("tensors without a name get one, and one that leaves has the name that it leaves under") {
  GraphJson graphs;
  const std::string text = goodJsonOf(graphs.ir(kUnnamed));
  const nlohmann::json json = nlohmann::json::parse(text);
  CHECK(json["entries"][0]["nodes"][2]["outputs"]["product"] == "up_0");
  CHECK(json["entries"][0]["nodes"][2]["split"] == nlohmann::json{{"space", "rows"}, {"size", 32}});
  CHECK(json["entries"][0]["nodes"][3]["outputs"]["tokens"] == "y");
  // After the first round trip nothing changes.
  CHECK(goodJsonOf(graphs.json(text)) == text);
}

TEST_CASE("splits, kinds, limits and factors are kept") {
  GraphJson graphs;
  const std::array<std::pair<std::string, std::string>, 1> words = {{{"activation", "swiglu_clamp"}}};
  std::string ir = irOf(graphs.file("forward.json", {.words = words}));
  ir = edited(ir, "(%rows_x, %gate_up_weight) ", "(%rows_x, %gate_up_weight) alpha 0.1 split <rows, 64> ");
  ir = edited(ir, "limit 7.0", "limit 3.5");
  const Module graph = graphs.ir(ir);
  CHECK(irOf(graphs.json(goodJsonOf(graph))) == irOf(graph));
  CHECK_THAT(goodJsonOf(graph), Contains("\"kind\":\"swiglu_clamp\",\"limit\":3.5") &&
                                    Contains("\"split\":{\"space\":\"rows\",\"size\":64}"));
}

TEST_CASE("a symbol has only the value that the sizes were made with") {
  GraphJson graphs;
  const std::array sets = {Set("ep", 4)}, other = {Set("ep", 2)};
  const std::string text = goodJsonOf(graphs.file("train.json", {sets}));
  const nlohmann::json json = nlohmann::json::parse(text);
  CHECK(json["symbols"]["ep"]["max"] == 4);
  CHECK(json["tensors"]["gate_up_weight"]["shape"] == nlohmann::json::array({16, 2048, 1536}));
  mlir::MLIRContext context;
  const auto changed = readGraphText(text, "again.json", {other}, context);
  REQUIRE_FALSE(changed);
  CHECK_THAT(changed.error().message, Contains("'ep'"));
}

TEST_CASE("what no graph file can express is an error with its place") {
  GraphJson graphs;
  const auto errorOf = [&](const std::string& text) {
    const Expected<std::string> json = formatJson(graphs.ir(text));
    return json ? "no error" : json.error().message;
  };
  std::string fused = edited(kUnnamed, "moe.gmm \"up\"", "moe.gmm_activation \"up\" swiglu");
  fused = edited(fused, "-> !moe.tensor<R x 64 x bf16>", "-> !moe.tensor<R x 32 x bf16>");
  fused = edited(fused, "(!moe.tensor<R x 64 x bf16>, !moe.routing) -> !moe.tensor<T x 64 x bf16>",
                 "(!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>");
  fused = edited(fused, "!moe.tensor<T x 64 x bf16>\n  }", "!moe.tensor<T x 32 x bf16>\n  }");
  CHECK(errorOf(fused) ==
        "layer.mlir:9:11: error: node 'up' is a gmm_activation, which graph files do not have");
  CHECK(errorOf(edited(kUnnamed, "%w = moe.input",
                       "%z = moe.input \"z\" : !moe.tensor<T x 8 x bf16>\n    %w = moe.input")) ==
        "layer.mlir:6:10: error: tensor 'z' is used by no node and is no output");
}

}  // namespace
}  // namespace sluice
