// The tokens and expert ids of all ranks, for a simulation: made, read from the inputs of a run, or recorded.
//
// Value type and free functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"
#include "runtime/sim/bind_all.h"
#include "tools/io/tensor.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {

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

}  // namespace sluice::tools
