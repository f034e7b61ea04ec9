// A Graph as the text of a graph file (graphs/FORMAT.md). Free function.
#pragma once

#include <string>

#include "compiler/graph/graph.h"

namespace sluice {

// readGraphText() of it gives the graph again, but for positions. Sizes are numbers, and a symbol keeps only
// its value, which cannot be set to another one.
std::string printGraphJson(const Graph& graph);

}  // namespace sluice
