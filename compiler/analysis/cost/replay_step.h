// The step that a replay runs: slots and pieces of the busiest rank, as bind would cut and number them for
// the expected routing, of all its experts or of some that represent all.
//
// Value type and a free function of values; the same input gives the same step. All ranks are taken to be
// alike: what this rank sends mirrors what it receives.
#pragma once

#include <cstdint>

#include "compiler/analysis/cost/cost.h"
#include "runtime/routing/routing.h"

namespace sluice {

struct ReplayStep {
  double part = 1;   // of the step: experts that are replayed, by experts of the rank
  int32_t rank = 0;  // that is replayed
  RoutingTables
      tables;  // of that rank, as far as a replay needs them; what it sends mirrors what it receives
};

// `experts` of the rank's, at least 1; they and their share of the tokens are replayed.
ReplayStep replayStepOf(const CostProblem& problem, const ExpectedRows& rows, int32_t experts);

// The work of the tasks of one slot of a space.
struct ReplayView {
  double rows = 0;      // or tokens
  double reuse = 1;     // tasks that read the same weight one after the other
  bool leaves = false;  // goes to another rank
};

ReplayView viewOf(const CostProblem& problem, const ReplayStep& step, SpaceKind kind, int64_t index);

}  // namespace sluice
