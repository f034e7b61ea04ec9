// Makes the choices that remain after the cost model has ranked sizes: the one of its best few that is
// fastest in the replay, the lane order of each entry, and windows.
//
// Plain values in, plain values out; the same input gives the same choice. Differences below two percent are
// noise (isNoise) and change nothing: of the sizes that are equally fast in the replay, those that the model
// ranks first are chosen.
#pragma once

#include <span>
#include <vector>

#include "compiler/analysis/cost/cost.h"
#include "compiler/analysis/cost/replay.h"
#include "compiler/analysis/decision.h"
#include "compiler/analysis/lane_order.h"

namespace sluice {

struct ScheduleChoice {
  size_t sizes = 0;                 // index of the chosen candidate
  std::vector<LaneRule> laneRules;  // by EntryId
  std::vector<Replay> replays;      // by EntryId, with its rule; empty if the step is too large to replay
  std::vector<Decision> decisions;
};

// `candidates` are the best sizes by the model, best first, at least one. `problem` may be cut by any sizes.
ScheduleChoice chooseSchedule(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
                              std::span<const CutSizes> candidates);

// Windows for `problem`, whose costs are `cost`: at most `most`, at most the expected slots and no table
// that is too large; but larger if a window would leave cores without a task. Windows do not change where or
// when tasks run, because the deal continues across windows.
Windows chooseWindows(const Windows& most, const CostProblem& problem, const LayerCost& cost);

// The largest useful number of tasks in the window of a lane; a program may have more.
inline constexpr int64_t kMaxTableTasks = 1 << 16;

}  // namespace sluice
