// The pipeline: the phases of a compilation in order. The first ones work on the graph, as MLIR passes, and
// are made here; form-tasks (form_tasks.h) turns it into a program, on which the others work
// (analysis/task_phases.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/target/target.h"
#include "mlir/Pass/PassManager.h"

namespace sluice {

struct PipelineOptions {
  // If set, derives a backward entry for these inputs; empty: for all that have a gradient.
  std::optional<std::vector<std::string>> trainable = {};
  bool accumulate = false;  // derived weight gradients are added to the old content of their outputs
  std::vector<std::string> fuse = {};  // as given to --fuse; empty: all
  // What the forward keeps for a derived entry: all; minimal, which recomputes activations; or regather,
  // which also dispatches rows again.
  std::string keep = "all";
  std::string grads = "F32";  // or BF16: the type of derived weight gradients
};

// All phases in order; check-splits is part of propagate-splits.
std::vector<std::string_view> phaseNames();

// Whether `phase` works on the graph.
bool isGraphPhase(std::string_view phase);

// Adds the passes of a phase of the graph, if the options request it, to a manager of builtin.module.
// `import` has no passes.
void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const PipelineOptions& options);

}  // namespace sluice
