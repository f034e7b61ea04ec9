// Simulates steps of a program: on a device, with a routing, the entries are bound and simulated one after
// the other.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/target/target.h"
#include "runtime/base/expected.h"
#include "runtime/exec/plan.h"
#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"
#include "runtime/sim/bind_all.h"
#include "runtime/sim/simulate.h"
#include "tools/io/tensor.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {

// The rates of a target, and the workers of a rank.
struct SimDevice {
  std::string name;  // of the target
  Rates rates;
  int workers = 1;  // per rank
};

// `workers`: as the user asks; 0: a worker per core of the program or, if cores are unified and the target
// has fewer, per core of the target. Errors: a target that does not exist or has no rates; a program whose
// kinds of cores are not the target's, or that has more separate cores than the target; more workers than the
// program has cores (found, expected).
Expected<SimDevice> makeSimDevice(const TaskProgram& program, const std::string& target, int workers);

// The tokens and expert ids of all ranks: made, read from the inputs of a run, or recorded.
struct StepRouting {
  std::vector<int64_t> tokens;     // by rank
  std::vector<TensorMap> tensors;  // by rank: expert ids and placements
  // By entry, then rank; of a recorded run, which has no tensors. Empty for entries that do not route.
  std::vector<std::vector<TracedRouting>> recorded = {};
};

// As `sluice make-inputs` makes them. Errors: from tokensOfRanks().
Expected<StepRouting> makeStepRouting(const TaskProgram& program, const InputsSpec& spec);

// From one file per rank, as `sluice run` reads them; of an entry without expert ids, only the tokens. Errors
// begin with the path: a tensor that is missing, or that does not fit the program (tensor, found, expected);
// none that shows the tokens.
Expected<StepRouting> readStepRouting(const TaskProgram& program, const std::string& pattern);

// What every rank binds for an entry that routes. Refers to `routing`.
std::vector<RankRouting> findRouting(const TaskProgram& program, EntryId entry, const StepRouting& routing);

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
