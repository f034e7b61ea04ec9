// The step that a replay runs: slots and pieces of the busiest rank, as bind would cut and number them for
// the expected routing, for all its experts or for some that represent all.
//
// Value type and a free function of values; the same input gives the same step. All ranks are assumed to be
// alike: what this rank sends mirrors what it receives.
#pragma once

#include <cstdint>

#include "compiler/analysis/cost/cost.h"
#include "runtime/routing/routing.h"

namespace sluice {

struct ReplayStep {
  double part = 1;       // fraction of the step: replayed experts / experts of the rank
  int32_t rank = 0;      // the rank that is replayed
  RoutingTables tables;  // of that rank, as far as a replay needs them
};

// Replays `experts` of the rank's experts, at least 1, and their share of the tokens, with own rows first or
// last.
ReplayStep replayStepOf(const CostProblem& problem, const ExpectedRows& rows, int32_t experts,
                        bool ownLast = false);

// The work of the tasks of one slot of a space.
struct ReplayView {
  double rows = 0;      // or tokens
  double reuse = 1;     // consecutive tasks that read the same weight
  bool leaves = false;  // its rows go to another rank
};

ReplayView viewOf(const CostProblem& problem, const ReplayStep& step, SpaceKind kind, int64_t index);

}  // namespace sluice
