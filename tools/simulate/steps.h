// Entries of a program bound and simulated, one after the other. Free functions of values.
#pragma once

#include <functional>
#include <vector>

#include "runtime/exec/plan.h"
#include "runtime/sim/simulate.h"
#include "tools/simulate/device.h"
#include "tools/simulate/step_routing.h"

namespace sluice::tools {

// The tables of all entries that use the routing of `entry`. Errors: from bindAll().
Expected<BoundRouting> bindStep(const Plan& plan, EntryId entry, const StepRouting& routing);

// One result per entry. Calls `before`, if there is one, before each entry with its index. Errors: from
// bindAll() and simulateEntry().
Expected<std::vector<SimResult>> simulateSteps(const Plan& plan, const std::vector<EntryId>& entries,
                                               const StepRouting& routing, const SimDevice& device,
                                               bool spans, const std::function<void(size_t)>& before = {});

// By rank, the traces of results that have them: the entries one after the other, 1 ns apart, each in a span
// of kind kRun.
std::vector<Trace> collectTraces(const std::vector<SimResult>& results);

}  // namespace sluice::tools
