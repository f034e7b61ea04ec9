// form-tasks: turns the nodes of a moe.graph into the families of a task program.
#pragma once

#include <string>

#include "compiler/target/target.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// The program of the only moe.graph of `module`, whose nodes have splits: spaces with windows of one slot,
// buffers without regions, and entries with families of one tile without events. Nodes whose rows are cut by
// the larger of two sizes are in space groups; a combine becomes two families, NAME.return and NAME.sum.
// Errors: no moe.graph, or more than one; a fused node if cube and vector cores are separate, with its place.
Expected<TaskProgram> formTasks(mlir::ModuleOp module, const Target& target, std::string optionLine,
                                uint64_t graphHash);

}  // namespace sluice
