// Names that passes give to entries, nodes and tensors that they add.
#pragma once

#include <string>

#include "compiler/dialect/moe_gradient.h"
#include "llvm/ADT/StringSet.h"

namespace sluice {

// The name of the entry that is derived from a forward.
inline constexpr llvm::StringLiteral kBackward = "backward";

// The names of the nodes and tensors below an op, for passes that add some: each gives the name, with a
// number appended if it is taken, and it is taken from then on.
class TakenNames {
 public:
  explicit TakenNames(mlir::Operation* root) {
    root->walk([&](mlir::Operation* op) {
      if (auto node = llvm::dyn_cast<moe::NodeOp>(op)) nodes_.insert(node.getNode());
      for (mlir::Value result : op->getResults()) tensors_.insert(moe::tensorName(result));
    });
  }
  std::string node(llvm::StringRef name) { return moe::takeName(nodes_, name); }
  std::string tensor(llvm::StringRef name) { return moe::takeName(tensors_, name); }

 private:
  llvm::StringSet<> nodes_, tensors_;
};

}  // namespace sluice
