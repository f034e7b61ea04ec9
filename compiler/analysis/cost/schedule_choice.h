// What is left to choose where the cost model has found sizes: which of the best few the replay takes, the
// lane order of each entry, and windows.
//
// Plain values in, plain values out; the same input gives the same choice. Differences below two percent are
// noise (isNoise) and change nothing: of the sizes that the replay finds as fast as the best, the model's
// first are taken.
#pragma once

#include <span>
#include <vector>

#include "compiler/analysis/cost/cost.h"
#include "compiler/analysis/cost/replay.h"
#include "compiler/analysis/decision.h"
#include "compiler/analysis/lane_order.h"

namespace sluice {

struct ScheduleChoice {
  size_t sizes = 0;                 // which of the candidates
  std::vector<LaneRule> laneRules;  // by entry
  std::vector<Replay> replays;      // by entry, by its rule; none where the step is too large to replay
  std::vector<Decision> decisions;
};

// `candidates` are the best sizes by the model, the best first; at least one. `problem` may be cut by any.
ScheduleChoice chooseSchedule(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
                              std::span<const CutSizes> candidates);

// Sizes of tables for `problem`, whose costs are `cost`: as in `most`, but not more slots than are expected
// and no table that is too large, and larger where a window would leave cores without a task. No window
// changes what runs where or when, since the deal goes on over windows.
Windows chooseWindows(const Windows& most, const CostProblem& problem, const LayerCost& cost);

// The most tasks in the window of a lane that are useful; a program may have more.
inline constexpr int64_t kMaxTableTasks = 1 << 16;

}  // namespace sluice
