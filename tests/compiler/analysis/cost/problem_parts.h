// Parts of the cost problems that tests build by hand. Header only; free functions on values.
#pragma once

#include <utility>
#include <vector>

#include "compiler/analysis/cost/cost.h"

namespace sluice {

// By default a task that scales `rows` rows of one element takes as many seconds, products take the time of
// their operations, and nothing else takes time.
inline Rates secondsByRow(double productFlops) {
  Rates rates;
  rates.matrix.gmm.flops = rates.matrix.gmmTransposed.flops = rates.matrix.weightGrad.flops = productFlops;
  rates.vector = {1, 1, 1e30, 1};
  rates.memory = {1e30, 1e30, 1e30, 1e30, 0, 0};
  rates.caches = {1e30, 1e30, 1e30};
  rates.link = {1e30, 0};
  return rates;
}

inline void setStep(const StepShape& step, CostProblem& problem) {
  problem.program.mesh = step.mesh;
  problem.program.experts = static_cast<int32_t>(step.experts);
  problem.program.topK = static_cast<int32_t>(step.topK);
  problem.program.maxTokens = static_cast<int32_t>(step.tokens);
}

// One entry, and all spaces with slots of 16 rows or tokens, by SpaceKind.
inline CostProblem problemOf(const StepShape& step, int32_t cores) {
  CostProblem problem;
  TaskProgram& program = problem.program;
  setStep(step, problem);
  program.cores = cores;
  program.entries = {{"forward", {}, {}}};
  for (int32_t kind = 0; kind <= static_cast<int32_t>(SpaceKind::MAX); ++kind)
    program.spaces.push_back({"", static_cast<SpaceKind>(kind), 16, 1});
  return problem;
}

// A family for a problem made by problemOf().
inline Family family(SpaceKind space, std::vector<EventId> waits, std::vector<EventId> signals,
                     OpKind op = OpKind::kScale) {
  Family out;
  out.name = "f";
  out.entry = EntryId{0};
  out.op = op;
  out.space = SpaceId{static_cast<uint32_t>(space)};
  out.tiling.n = 1;
  out.waits = std::move(waits);
  out.signals = std::move(signals);
  return out;
}

}  // namespace sluice
