// The step that is simulated to choose sizes and orders: slots and pieces of the busiest rank, as bind would
// cut and number them for the expected routing, for all its experts or for some that represent all.
//
// Value type and a free function of values; the same input gives the same step. All ranks are assumed to be
// alike: what this rank sends mirrors what it receives.
#pragma once

#include <cstdint>

#include "compiler/analysis/cost/cost.h"
#include "runtime/routing/routing.h"

namespace sluice {

struct ExpectedStep {
  double part = 1;       // fraction of the step: simulated experts / experts of the rank
  int32_t rank = 0;      // stands for all
  RoutingTables tables;  // of that rank, as far as simulateOneForAll() needs them
};

// Returns the step of `experts` of the rank's experts, at least 1, with their share of the tokens. Own rows
// come first, or last if `ownLast`.
ExpectedStep expectStep(const CostProblem& problem, const ExpectedRows& rows, int32_t experts,
                        bool ownLast = false);

}  // namespace sluice
