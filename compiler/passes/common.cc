#include "compiler/passes/common.h"

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

}  // namespace sluice
