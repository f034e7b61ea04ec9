// Sizes and lane order for one compilation: what the cost model chooses where neither the graph nor the user
// says.
//
// Free function of plain values.
#pragma once

#include <vector>

#include "compiler/analysis/decision.h"
#include "compiler/analysis/task_phases.h"
#include "compiler/api/compile.h"
#include "compiler/passes/split_nodes.h"

namespace sluice {

// The options of the phases after form-tasks for `program`, as that leaves it, and the reasons in
// `decisions`: the sizes that the model finds best for what the program computes; those of `target` where it
// has no rates. The sizes of `options` stay, and so do slots that the graph declares. Errors: shares that are
// not of as many experts as the graph has; those of insert-events.
Expected<TaskOptions> chooseTaskOptions(const TaskProgram& program, const DeclaredSlots& declared,
                                        const Target& target, const CompileOptions& options,
                                        std::vector<Decision>& decisions);

}  // namespace sluice
