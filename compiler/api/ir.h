// Ir: a module and the context that owns everything in it. Move-only.
#pragma once

#include <memory>

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace sluice {

struct Ir {
  std::shared_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;  // destroyed before its context
};

}  // namespace sluice
