// What several passes need: findings as diagnostics, families by id, names as attributes.
#pragma once

#include <vector>

#include "compiler/analysis/finding.h"
#include "compiler/dialect/task.h"
#include "runtime/program/program.h"

namespace sluice {

// Reports the finding at the op it is about, or at `fallback`, with its note. Always fails.
mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback);

// The families of all entries, by FamilyId.
std::vector<mlir::Operation*> familyOps(task::ProgramOp program);

// The entries, by EntryId.
std::vector<task::EntryOp> entryOps(task::ProgramOp program);

}  // namespace sluice
