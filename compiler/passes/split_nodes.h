// The nodes of a moe.graph as the split analysis sees them.
#pragma once

#include <vector>

#include "compiler/analysis/splits.h"
#include "compiler/dialect/moe.h"
#include "mlir/IR/BuiltinOps.h"

namespace sluice {

struct SplitNodes {
  std::vector<SplitNode> nodes;       // of all entries, in order; routes are not cut
  std::vector<mlir::Operation*> ops;  // of the same index
};

// A tensor that an entry saved leads to its producer there.
SplitNodes splitNodesOf(moe::GraphOp graph);

}  // namespace sluice
