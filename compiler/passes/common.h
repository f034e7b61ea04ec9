// What several passes need: findings as diagnostics.
#pragma once

#include "compiler/analysis/finding.h"
#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

namespace sluice {

// Reports the finding at the op it is about, or at `fallback`, with its note. Always fails.
mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback);

}  // namespace sluice
