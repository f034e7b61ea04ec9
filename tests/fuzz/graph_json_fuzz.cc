// Graph files: what is read prints as a graph file that reads to the same graph, with any symbol set.
#include <string>
#include <utility>
#include <vector>

#include "compiler/export/graph_json.h"
#include "compiler/graph/read_graph.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr const char* kFile = "graph.json";

void requireGraph(const Graph& graph) {
  const std::string text = printGraphJson(graph);
  const Expected<Graph> again = readGraphText(text, kFile, {});
  fuzz::require(again.ok(), "a graph that is printed can be read");
  fuzz::require(printGraphJson(*again) == text, "a graph prints and reads to itself");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text = fuzz::textOf(data, size);
  const Expected<Graph> graph = readGraphText(text, kFile, {});
  if (!graph) {
    fuzz::requireMessage(graph.error().message, "graph.json:");
    return 0;
  }
  requireGraph(*graph);
  std::vector<std::pair<std::string, int64_t>> sets;
  for (const GraphSymbol& symbol : graph->symbols) sets.emplace_back(symbol.name, symbol.min);
  const Expected<Graph> other = readGraphText(text, kFile, sets);
  if (other)
    requireGraph(*other);
  else
    fuzz::requireMessage(other.error().message, "graph.json:");
  return 0;
}
