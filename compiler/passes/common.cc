#include "compiler/passes/common.h"

namespace sluice {

mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback) {
  mlir::Operation* at = finding.at < ops.size() ? ops[finding.at] : fallback;
  mlir::InFlightDiagnostic error = mlir::emitError(at->getLoc()) << finding.message;
  if (finding.noteAt < ops.size() && !finding.note.empty())
    error.attachNote(ops[finding.noteAt]->getLoc()) << finding.note;
  return mlir::failure();
}

std::vector<mlir::Operation*> familyOps(task::ProgramOp program) {
  std::vector<mlir::Operation*> ops;
  for (auto entry : program.getOps<task::EntryOp>())
    for (auto family : entry.getOps<task::FamilyOp>()) ops.push_back(family);
  return ops;
}

std::vector<task::EntryOp> entryOps(task::ProgramOp program) {
  const auto entries = program.getOps<task::EntryOp>();
  return {entries.begin(), entries.end()};
}

}  // namespace sluice
