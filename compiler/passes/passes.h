// The passes of the compiler. passes.td specifies what each expects, what it produces and when it fails.
#pragma once

#include <memory>

#include "compiler/dialect/moe.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

// Generated from passes.td; MLIR's generators leave parameters unused.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
namespace sluice {

#define GEN_PASS_DECL
#include "compiler/passes/passes.h.inc"

// Registers all passes for sluice-opt.
#define GEN_PASS_REGISTRATION
#include "compiler/passes/passes.h.inc"

}  // namespace sluice
#pragma GCC diagnostic pop
