// export: from the `moe` dialect to a Graph, the way back of compiler/import.
//
// Free functions; what they return owns nothing of the module.
#pragma once

#include "compiler/dialect/moe.h"
#include "compiler/graph/graph.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/base/expected.h"

namespace sluice {

// The module's graph. Its sizes are numbers, so that each symbol keeps only the value the graph was sized
// with; tensors that have no name get one, and one that leaves its entry has the name that it leaves under.
// `file` is for locations. Errors (whole reports): no graph or more than one, an op that graph files do not
// have (what fuse makes).
Expected<Graph> exportGraph(mlir::ModuleOp module, const std::string& file);

}  // namespace sluice
