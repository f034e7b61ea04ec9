// The choice of a schedule: the slots, tiles, windows and lane order that are best for an expected routing,
// by the cost model and by simulation of the step.
//
// Plain values in, plain values out; the same input gives the same choice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compiler/analysis/cost/cost.h"
#include "compiler/analysis/decision.h"
#include "compiler/analysis/lanes.h"
#include "runtime/program/verify.h"
#include "runtime/routing/routing.h"
#include "runtime/sim/sim_result.h"

namespace sluice {

// The step that is simulated to choose sizes and orders: slots and pieces of the busiest rank, as bind would
// cut and number them for the expected routing, for all its experts or for some that represent all. All ranks
// are assumed to be alike: what this rank sends mirrors what it receives.
struct ExpectedStep {
  double part = 1;       // fraction of the step: simulated experts / experts of the rank
  int32_t rank = 0;      // stands for all
  RoutingTables tables;  // of that rank, as far as simulateOneForAll() needs them
};

// Returns the step of `experts` of the rank's experts, at least 1, with their share of the tokens. Own rows
// come first, or last if `ownLast`.
ExpectedStep expectStep(const CostProblem& problem, const ExpectedRows& rows, int32_t experts,
                        bool ownLast = false);

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

// Makes the choices that remain after the cost model has ranked sizes: the one of its best few that is
// fastest when simulated (runtime/sim), the lane order of each entry, and windows. Differences below two
// percent are noise (isNoise) and change nothing: of the sizes that are equally fast when simulated, those
// that the model ranks first are chosen. One rank is simulated, which stands for all. Of a large step only
// some experts are simulated, and the rest is assumed to keep the cores (or the link) fully busy.
//
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

// Chooses by the cost model and by simulation. Works for every shape: sizes are enumerated and scored, there
// is no table. Sizes that are fixed (declared in the graph, or given by hand) are kept.
//
// `problem` may be cut by any sizes; `start` has the fixed sizes, and initial values of the others. `windows`
// are the target's.
SizeChoice chooseSizes(CostProblem problem, const Rates& rates, const Expectation& expectation,
                       const CutSizes& start, const FixedSizes& fixed, const Windows& windows,
                       const CompleteProgram& complete);

}  // namespace sluice
