// The operands and results of a node as its op has them in a program (runtime/program/op_table.h).
#pragma once

#include <optional>

#include "compiler/dialect/moe.h"
#include "runtime/program/op_table.h"

namespace sluice::moe {

// The op of a program that the node becomes; none: a route, or a combine, which becomes two.
std::optional<OpKind> findOpKind(mlir::Operation* node);

// All operands, and all results, in the order of moe.td; null where one is absent before the last.
llvm::SmallVector<mlir::Value> collectOperands(mlir::Operation* node);
llvm::SmallVector<mlir::Value> collectResults(mlir::Operation* node);

// What a node that becomes one op reads, and what it gives: a value for each row of the op's reads and
// writes, null where that is absent.
llvm::SmallVector<mlir::Value> collectReads(mlir::Operation* node);
llvm::SmallVector<mlir::Value> collectWrites(mlir::Operation* node);

}  // namespace sluice::moe
