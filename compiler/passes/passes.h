// The passes of the compiler; passes.td specifies what each expects, what it produces and when it fails.
// After them, form-tasks turns the nodes of a moe.graph into the families of a task program.
#pragma once

#include <memory>
#include <string>

#include "compiler/dialect/moe.h"
#include "compiler/target/target.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

// Generated from passes.td; MLIR's generators leave parameters unused.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
namespace sluice {

#define GEN_PASS_DECL
#include "compiler/passes/passes.h.inc"

// Registers all passes for sluice-opt.
#define GEN_PASS_REGISTRATION
#include "compiler/passes/passes.h.inc"
#pragma GCC diagnostic pop

// The sizes that nodes of a graph declare; 0 if no node does. If there are two sizes of rows, `rows` is the
// smaller one, the size of slots.
struct DeclaredSlots {
  int32_t rows = 0;
  int32_t tokens = 0;
};
DeclaredSlots findDeclaredSlots(moe::GraphOp graph);

// form-tasks: the program of the only moe.graph of `module`, whose nodes have splits: spaces with windows of
// one slot, buffers without regions, and entries with families of one tile without events. Nodes whose rows
// are cut by the larger of two sizes are in space groups; a combine becomes two families, NAME.return and
// NAME.sum. Errors: no moe.graph, or more than one; a fused node if cube and vector cores are separate, with
// its place.
Expected<TaskProgram> formTasks(mlir::ModuleOp module, const Target& target, std::string optionLine,
                                uint64_t graphHash);

}  // namespace sluice
