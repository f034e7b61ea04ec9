#include "tests/compiler/graph/graph_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "llvm/Support/raw_ostream.h"

namespace sluice::testing {

std::string smallGraph() {
  return R"({
  "format": 1,
  "name": "small",
  "symbols": {
    "ep": {"default": 2, "min": 1, "max": 8, "doc": "ranks"},
    "hidden": {"default": 64, "min": 0, "max": 1048576}
  },
  "limits": {"ranks": "ep", "experts": 8, "top_k": 2, "max_tokens": 128},
  "tensors": {
    "x": {"type": "BF16", "shape": ["T", "hidden"]},
    "ids": {"type": "I32", "shape": ["T", 2]},
    "up": {"type": "BF16", "shape": ["8/ep", "hidden", "2*hidden"]},
    "down": {"type": "BF16", "shape": ["8/ep", "2*hidden", "hidden"]},
    "routing": {"type": "routing"},
    "rows": {"type": "BF16", "shape": ["R", "hidden"]},
    "mid": {"type": "BF16", "shape": ["R", "2*hidden"]},
    "out": {"type": "BF16", "shape": ["R", "hidden"]},
    "y": {"type": "BF16", "shape": ["T", "hidden"]}
  },
  "entries": [
    {
      "name": "run",
      "inputs": ["x", "ids", "up", "down"],
      "nodes": [
        {"name": "down_proj", "op": "gmm", "inputs": {"rows": "mid", "weight": "down"}, "outputs": {"product": "out"}},
        {"name": "route", "op": "route", "inputs": {"expert_ids": "ids"}, "outputs": {"routing": "routing"}},
        {"name": "dispatch", "op": "dispatch", "inputs": {"tokens": "x", "routing": "routing"},
         "outputs": {"rows": "rows"}, "split": {"space": "rows", "size": 64}},
        {"name": "up_proj", "op": "gmm", "inputs": {"rows": "rows", "weight": "up"}, "outputs": {"product": "mid"}},
        {"name": "combine", "op": "combine", "inputs": {"rows": "out", "routing": "routing"},
         "outputs": {"tokens": "y"}}
      ],
      "outputs": ["y"]
    }
  ]
}
)";
}

std::string edited(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string edited(std::string_view from, std::string_view to) { return edited(smallGraph(), from, to); }

namespace {

std::string printed(const Expected<mlir::OwningOpRef<mlir::ModuleOp>>& module) {
  if (!module) FAIL(module.error().message);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->get().print(stream);
  return text;
}

}  // namespace

std::string irOf(std::string_view text, SymbolSets sets) {
  mlir::MLIRContext context;
  return printed(readGraphText(text, "g.json", sets, context));
}

std::string irOfFile(const std::string& name, SymbolSets sets) {
  mlir::MLIRContext context;
  return printed(readGraph("graphs/moe_ffn/" + name, sets, context));
}

std::string errorOf(std::string_view text, SymbolSets sets) {
  mlir::MLIRContext context;
  const auto module = readGraphText(text, "g.json", sets, context);
  return module ? "no error" : module.error().message;
}

std::string placeInText(std::string_view text, std::string_view needle) {
  const size_t at = text.find(needle);
  REQUIRE(at != std::string_view::npos);
  const std::string_view before = text.substr(0, at);
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t column = at - (before.rfind('\n') + 1) + 1;  // rfind gives npos in the first line
  return fmt::format("g.json:{}:{}", line, column);
}

std::string errorAtText(std::string_view text, std::string_view needle, std::string_view message) {
  return fmt::format("{}: error: {}", placeInText(text, needle), message);
}

}  // namespace sluice::testing
