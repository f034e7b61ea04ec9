// The choice of a schedule: the slots, tiles, windows and lane order that the cost model finds best for an
// expected routing.
//
// Plain values in, plain values out; the same input gives the same choice. Works for every shape: sizes are
// enumerated and scored, there is no table. Sizes that are fixed (declared in the graph, or given by hand)
// are kept.
#pragma once

#include <vector>

#include "compiler/analysis/cost/cost.h"
#include "compiler/analysis/cost/schedule_choice.h"
#include "compiler/analysis/decision.h"
#include "compiler/analysis/lane_order.h"

namespace sluice {

// The sizes that the model must not choose.
struct FixedSizes {
  bool slotRows = false;
  bool tokenSlot = false;
  bool tiles = false;
};

struct SizeChoice {
  CutSizes sizes;
  Windows windows;
  std::vector<LaneRule> laneRules;  // by EntryId
  LayerCost cost;                   // of the families cut by `sizes`, in their order
  std::vector<Decision> decisions;  // about the whole program first, then by family
};

// `problem` may be cut by any sizes; `start` has the fixed sizes, and initial values of the others. `windows`
// are the target's.
SizeChoice chooseSizes(CostProblem problem, const Rates& rates, const Expectation& expectation,
                       const CutSizes& start, const FixedSizes& fixed, const Windows& windows,
                       const CompleteProgram& complete);

}  // namespace sluice
