// The pipeline: the phases of a compilation in order. The first ones work on the graph, as MLIR passes, and
// are made here; form-tasks (form_tasks.h) turns it into a program, on which the others work
// (analysis/task_phases.h).
#pragma once

#include <string_view>
#include <vector>

#include "compiler/api/compile.h"
#include "mlir/Pass/PassManager.h"

namespace sluice {

// All phases in order; check-splits is part of propagate-splits.
std::vector<std::string_view> phaseNames();

// Whether `phase` works on the graph.
bool isGraphPhase(std::string_view phase);

// Adds the passes of a phase of the graph, if the options request it, to a manager of builtin.module.
// `import` has no passes.
void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const CompileOptions& options);

}  // namespace sluice
