// Chooses sizes and lane order for one compilation by the cost model, where neither the graph nor the user
// specifies them.
//
// Free function of plain values.
#pragma once

#include <vector>

#include "compiler/analysis/decision.h"
#include "compiler/analysis/task_phases.h"
#include "compiler/api/compile.h"
#include "compiler/passes/split_nodes.h"

namespace sluice {

// The options of the phases after form-tasks for `program`, which form-tasks returned, with the reasons in
// `decisions`: the sizes that the model finds best, or the sizes of `target` if it has no rates. Sizes in
// `options` and slots that the graph declares stay. Errors: shares for a number of experts other than the
// graph's; the errors of insert-events.
Expected<TaskOptions> chooseTaskOptions(const TaskProgram& program, const DeclaredSlots& declared,
                                        const Target& target, const CompileOptions& options,
                                        std::vector<Decision>& decisions);

}  // namespace sluice
