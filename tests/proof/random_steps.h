// Steps of any program with fully random routings and data, and what the executors of runtime/exec make of
// them, as bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "tools/io/tensor.h"

namespace sluice {

// One run of all entries, at all ranks. Outputs lie in memory that is filled with a pattern,
// or with 0 where they are added to.
struct RandomStep {
  std::vector<tools::TensorMap> inputs;   // by rank
  std::vector<tools::TensorMap> outputs;  // by rank; not those that the runtime owns
};

// Ranks with few or no tokens, masked pairs, hot experts and experts without rows all occur. All entries that
// route by expert ids of their own get different ones.
RandomStep randomStep(const TaskProgram& program, uint64_t seed);

struct StepsRun {
  std::string error;           // of any rank, or ""
  std::vector<uint64_t> bits;  // a hash for each output by step, rank and buffer
};

// Runs the steps at a rank whose context this is, and appends a hash for each output, by step and buffer.
Status runStepsAt(int rank, Context& context, const TaskProgram& program, std::vector<RandomStep>& steps,
                  std::vector<uint64_t>& bits);

// Runs the steps one after the other in one context a rank. `delays` other than 0 makes signals come late, at
// random. The outputs of the steps hold what was computed.
StepsRun runSteps(const Program& program, std::vector<RandomStep>& steps, const ContextOptions& options,
                  uint64_t delays);

}  // namespace sluice
