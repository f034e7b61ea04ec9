// Graph -> `moe` dialect.
//
// The module belongs to the caller, its types and attributes to the context. Every op carries the place in
// the graph file it comes from.
#pragma once

#include "compiler/graph/graph.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace sluice {

// A module with one moe.graph, verified. Null after an error (shapes or types that do not fit), which was
// reported to the context's diagnostic engine with its place in the file. Loads the dialect.
mlir::OwningOpRef<mlir::ModuleOp> importGraph(const Graph& graph, mlir::MLIRContext& context);

}  // namespace sluice
