// Makes the choices that remain after the cost model has ranked sizes: the one of its best few that is
// fastest when simulated (runtime/sim), the lane order of each entry, and windows.
//
// Plain values in, plain values out; the same input gives the same choice. Differences below two percent are
// noise (isNoise) and change nothing: of the sizes that are equally fast when simulated, those that the model
// ranks first are chosen. One rank is simulated, which stands for all. Of a large step only some experts are
// simulated, and the rest is assumed to keep the cores (or the link) fully busy.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "compiler/analysis/cost/cost.h"
#include "compiler/analysis/decision.h"
#include "compiler/analysis/lane_order.h"
#include "runtime/program/verify.h"
#include "runtime/sim/sim_result.h"

namespace sluice {

// The program of a problem, cut by these sizes, with all that executors need. An error leaves the candidate
// out.
using CompleteProgram =
    std::function<Expected<VerifiedProgram>(const CutSizes&, const Windows&, std::span<const LaneRule>)>;

struct SimulatedEntry {
  double seconds = 0;  // of the whole entry
  double part = 1;     // fraction of the step that was simulated
  SimResult result;    // of that part
};

struct ScheduleChoice {
  size_t sizes = 0;                     // index of the chosen candidate
  std::vector<LaneRule> laneRules;      // by EntryId
  std::vector<SimulatedEntry> entries;  // by EntryId, with its rule; empty if the step is too large
  std::vector<Decision> decisions;
};

// `candidates` are the best sizes by the model, best first, at least one. `problem` may be cut by any sizes.
// `most` are the windows of the target.
ScheduleChoice chooseSchedule(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
                              std::span<const CutSizes> candidates, const Windows& most,
                              const CompleteProgram& complete);

// Windows for `problem`, whose costs are `cost`: at most `most`, at most the expected slots and no table
// that is too large; but larger if a window would leave cores without a task. Windows do not change where or
// when tasks run, because the deal continues across windows.
Windows chooseWindows(const Windows& most, const CostProblem& problem, const LayerCost& cost);

// The largest useful number of tasks in the window of a lane; a program may have more.
inline constexpr int64_t kMaxTableTasks = 1 << 16;

}  // namespace sluice
