// Graph files: what is read prints as a graph file that reads to the same graph, with any symbol set.
#include <string>
#include <utility>
#include <vector>

#include "compiler/export/graph_text.h"
#include "compiler/graph/read_graph.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr const char* kFile = "graph.json";

using Module = mlir::OwningOpRef<mlir::ModuleOp>;

moe::GraphOp graphOf(const Module& module) { return *module.get().getOps<moe::GraphOp>().begin(); }

void requireGraph(const Module& module) {
  const Expected<std::string> text = printGraphJson(graphOf(module), kFile);
  fuzz::require(text.ok(), "a graph that was read can be printed");
  mlir::MLIRContext context;
  const Expected<Module> again = readGraphText(*text, kFile, {}, context);
  fuzz::require(again.ok(), "a graph that is printed can be read");
  const Expected<std::string> same = printGraphJson(graphOf(*again), kFile);
  fuzz::require(same.ok() && *same == *text, "a graph prints and reads to itself");
}

// What is read or refused with a message that begins with its place.
Expected<Module> read(std::string_view text, SymbolSets sets, mlir::MLIRContext& context) {
  Expected<Module> module = readGraphText(text, kFile, sets, context);
  if (module)
    requireGraph(*module);
  else
    fuzz::requireMessage(module.error().message, "graph.json:");
  return module;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text = fuzz::textOf(data, size);
  mlir::MLIRContext context;
  const auto graph = read(text, {}, context);
  if (!graph) return 0;
  std::vector<std::pair<std::string, int64_t>> sets;
  for (const mlir::NamedAttribute& symbol : graphOf(*graph).getSymbols())
    sets.emplace_back(symbol.getName().str(), 1);
  (void)read(text, {sets}, context);
  return 0;
}
