// Shared by several passes: findings as diagnostics.
#pragma once

#include "compiler/analysis/finding.h"
#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"

namespace sluice {

// Reports the finding and its note at the op that it concerns, or at `fallback`. Always returns failure.
mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback);

}  // namespace sluice
