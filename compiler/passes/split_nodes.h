// The nodes of a moe.graph as the split analysis sees them.
#pragma once

#include <vector>

#include "compiler/analysis/splits.h"
#include "compiler/dialect/moe.h"
#include "mlir/IR/BuiltinOps.h"

namespace sluice {

struct SplitNodes {
  std::vector<SplitNode> nodes;       // of all entries, in order; routes are not cut
  std::vector<mlir::Operation*> ops;  // with the same index
};

// A tensor that an entry saved is traced to its producer there.
SplitNodes collectSplitNodes(moe::GraphOp graph);

// The sizes that nodes of a graph declare; 0 if no node does. If there are two sizes of rows, `rows` is the
// smaller one, the size of slots.
struct DeclaredSlots {
  int32_t rows = 0;
  int32_t tokens = 0;
};
DeclaredSlots findDeclaredSlots(moe::GraphOp graph);

// For graphs with splits: the names of the nodes of its entry that node `i` reads but that are cut along
// another space, or into rows of another size, so that it waits for other slots than its own. Empty for a
// combine: its rows return to their tokens by special rules. In order, without repetition.
std::vector<llvm::StringRef> listResplits(const SplitNodes& nodes, size_t i);

// The attribute of a node that holds those names as strings; absent if there are none.
inline constexpr llvm::StringLiteral kResplitAttr = "moe.resplit";

}  // namespace sluice
