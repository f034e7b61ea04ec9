// A moe.graph as the text of a graph file (graphs/FORMAT.md). Free function.
#pragma once

#include <string>

#include "compiler/dialect/moe.h"
#include "runtime/base/expected.h"

namespace sluice {

// readGraphText() turns it into the same graph, except for locations. Sizes are numbers, and a symbol keeps
// only its value, which cannot be changed. Tensors without a name get one; one that leaves its entry has the
// name under which it leaves. `file` is named if an op has no location. Errors (whole reports): things that
// graph files do not have, such as an op that fuse makes, or a tensor that no node reads.
Expected<std::string> printGraphJson(moe::GraphOp graph, const std::string& file);

}  // namespace sluice
