// A moe.graph as the text of a graph file (graphs/FORMAT.md). Free function.
#pragma once

#include <string>

#include "compiler/dialect/moe.h"
#include "runtime/base/expected.h"

namespace sluice {

// readGraphText() of it gives the graph again, but for locations. Sizes are numbers, and a symbol keeps only
// its value, which cannot be set to another one. Tensors that have no name get one, and one that leaves its
// entry has the name that it leaves under. `file` is named where an op has no location. Errors (whole
// reports): what graph files do not have, such as an op that fuse makes, or a tensor that nothing reads.
Expected<std::string> printGraphJson(moe::GraphOp graph, const std::string& file);

}  // namespace sluice
