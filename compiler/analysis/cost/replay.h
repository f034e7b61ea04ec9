// Replay: simulates one entry task by task in the order that the executors use, with the times of the cost
// model.
//
// Every core tries the heads of its lanes by priority, one lane per family, and takes the first ready one.
// Tasks are dealt to the cores over all slots, so the windows of a table change nothing. Rows for other ranks
// leave one after the other at the rate of the link; arrivals mirror sends. The same input gives the same
// result, in bounded time: of a large step only some experts are replayed, and the rest is assumed to keep
// the cores (or the link) fully busy.
//
// Plain values in, plain values out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/cost/cost.h"
#include "compiler/analysis/cost/replay_step.h"
#include "compiler/analysis/lane_order.h"

namespace sluice {

struct ReplayedFamily {
  double firstStart = 0;  // seconds from the beginning of the entry
  double lastEnd = 0;
  int64_t tasks = 0;
};

struct ReplayedPool {
  CorePool pool;
  double busy = 0;  // seconds, summed over all its cores
};

// Idle seconds, summed over all cores, by what the cores waited for.
struct ReplayedWaits {
  double arrival = 0;   // rows from other ranks, or on their way back
  double producer = 0;  // a task of this rank
  double end = 0;       // nothing was left for the core
};

// All times except `seconds` cover only the part that was replayed.
struct Replay {
  double seconds = 0;  // of the whole entry
  double replayed = 0;
  double part = 1;  // fraction of the step that was replayed
  int64_t tasks = 0;
  std::vector<ReplayedPool> pools;
  ReplayedWaits waits;
  std::vector<ReplayedFamily> families;  // by FamilyId; those of other entries have no tasks
};

// How many experts of the rank to replay so that no entry runs more than `mostTasks`; 0 if one expert is
// already too many, or the problem has no events.
int32_t expertsToReplay(const CostProblem& problem, const ExpectedRows& rows, const LayerCost& cost,
                        int64_t mostTasks);

// Returns nothing if the entry has tasks that wait for an event that no task signals, or if it takes too many
// steps.
std::optional<Replay> replayEntry(const CostProblem& problem, uint32_t entry, LaneRule rule,
                                  const Rates& rates, const ReplayStep& step);

}  // namespace sluice
