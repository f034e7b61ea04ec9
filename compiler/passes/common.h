// Shared by several passes: findings as diagnostics, and names for what they add.
#pragma once

#include <string>

#include "compiler/analysis/finding.h"
#include "compiler/dialect/moe.h"
#include "llvm/ADT/StringSet.h"
#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

namespace sluice {

// Reports the finding and its note at the op that it concerns, or at `fallback`. Always returns failure.
mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback);

// The name of the entry that is derived from a forward.
inline constexpr llvm::StringLiteral kBackward = "backward";

inline moe::MoeTensorType moeTensorType(mlir::Value value) {
  return llvm::cast<moe::MoeTensorType>(value.getType());
}

// The names of the nodes and tensors below an op, for passes that add some: each gives the name, with a
// number appended if it is taken, and it is taken from then on.
class TakenNames {
 public:
  explicit TakenNames(mlir::Operation* root);
  std::string node(llvm::StringRef name);
  std::string tensor(llvm::StringRef name);

 private:
  llvm::StringSet<> nodes_, tensors_;
};

}  // namespace sluice
