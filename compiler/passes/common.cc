#include "compiler/passes/common.h"

#include "compiler/dialect/moe_gradient.h"
#include "mlir/IR/Diagnostics.h"

namespace sluice {

mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback) {
  mlir::Operation* at = finding.at < ops.size() ? ops[finding.at] : fallback;
  mlir::InFlightDiagnostic error = mlir::emitError(at->getLoc()) << finding.message;
  if (finding.noteAt < ops.size() && !finding.note.empty())
    error.attachNote(ops[finding.noteAt]->getLoc()) << finding.note;
  return mlir::failure();
}

TakenNames::TakenNames(mlir::Operation* root) {
  root->walk([&](mlir::Operation* op) {
    if (auto node = llvm::dyn_cast<moe::NodeOp>(op)) nodes_.insert(node.getNode());
    for (mlir::Value result : op->getResults()) tensors_.insert(moe::tensorName(result));
  });
}

std::string TakenNames::node(llvm::StringRef name) { return moe::takeName(nodes_, name); }
std::string TakenNames::tensor(llvm::StringRef name) { return moe::takeName(tensors_, name); }

}  // namespace sluice
