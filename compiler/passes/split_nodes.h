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

// The sizes that nodes of a graph declare; 0: none does. Of two sizes of rows the smaller, that of slots.
struct DeclaredSlots {
  int32_t rows = 0;
  int32_t tokens = 0;
};
DeclaredSlots declaredSlotsOf(moe::GraphOp graph);

// Where nodes have splits: names of the nodes of its entry whose results node `i` reads, but which are cut
// along another space, or into rows of another size, so that it waits for other slots of them than its own.
// Empty for a combine: rows come back to their tokens by their own rules. In order, each once.
std::vector<llvm::StringRef> resplitsOf(const SplitNodes& nodes, size_t i);

// The attribute of a node that holds those names, as strings; absent where there are none.
inline constexpr llvm::StringLiteral kResplitAttr = "moe.resplit";

}  // namespace sluice
