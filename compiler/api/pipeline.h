// The pipeline: the phases of a compilation in order. The first ones work on the graph, as MLIR passes, and
// are made here; form-tasks turns it into a program, on which the others work (analysis/task_phases.h).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "compiler/analysis/decision.h"
#include "compiler/analysis/task_phases.h"
#include "compiler/api/compile.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

namespace sluice {

// Ir: a module and the context that owns everything in it. Move-only.
struct Ir {
  std::shared_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;  // destroyed before its context
};

// All phases in order; check-splits is part of propagate-splits.
std::vector<std::string_view> phaseNames();

// Whether `phase` works on the graph.
bool isGraphPhase(std::string_view phase);

// Adds the passes of a phase of the graph, if the options request it, to a manager of builtin.module.
// `import` has no passes.
void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const CompileOptions& options);

// Chooses sizes and lane order by the cost model, where neither the graph nor the user specifies them: the
// options of the phases after form-tasks for `program`, which form-tasks returned, with the reasons in
// `decisions`: the sizes that the model finds best, or the sizes of `target` if it has no rates. Sizes in
// `options` and slots that the graph declares stay. Errors: shares for a number of experts other than the
// graph's; the errors of insert-events.
Expected<TaskOptions> chooseTaskOptions(const TaskProgram& program, const DeclaredSlots& declared,
                                        const Target& target, const CompileOptions& options,
                                        std::vector<Decision>& decisions);

}  // namespace sluice
