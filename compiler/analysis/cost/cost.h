// The cost model: how long the tasks of a program take on a device, for an expected routing.
//
// Plain values in, plain values out; no state. It ranks sizes by the busy time of the cores, the time that an
// uneven deal adds, and the time that cores wait at the ends of chains.
//
//   time of a task   = product + vector work + memory that is not hidden + cost of a task
//   time of an entry = max(work / cores, bytes to other ranks / link) + uneven deal + ends of chains +
//   latency
//
// If matrix and vector cores are separate, work / cores is computed for each kind as if no other used the
// memory, and the kind that takes longest counts. choice.h follows the schedule task by task.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/cost/routing.h"
#include "compiler/analysis/lanes.h"
#include "compiler/analysis/tiles.h"
#include "runtime/cost/rates.h"
#include "runtime/program/program.h"

namespace sluice {

// The input of the model: limits, spaces, buffers, entries, events and families of a program, cut by any
// sizes. Lanes and regions are ignored. Without events no step can be simulated.
struct CostProblem {
  TaskProgram program;
  CommunicationCores communication;

  SpaceKind familySpace(const Family& family) const { return program.at(family.space).kind; }
  // The size of a slot of that space; 0 if the program has no such space.
  int32_t slotSize(SpaceKind space) const;
  StepShape step() const;
};

// The cores that share the family's tasks.
int32_t coreCount(const CostProblem& problem, const Family& family);

// Tasks of a family per slot of its space, by its tiling.
int64_t countTiles(const Family& family);

struct FamilyCost {
  double tasks = 0;    // per step at the busiest rank
  double longest = 0;  // seconds of its longest task
  double seconds = 0;  // of all its tasks together
  double product = 0;  // of `seconds`: multiplying
  double memory = 0;   // of `seconds`: waiting for memory
  double link = 0;     // bytes that it sends to other ranks
};

struct LayerCost {
  std::vector<FamilyCost> families;  // by FamilyId
  std::vector<double> entries;       // seconds
  double seconds = 0;                // of all entries
  double busy = 0;                   // of `seconds`: average work per core
};

// Whether two times are equal within the accuracy of the model: one is more than 98% of the other.
inline constexpr double kNoise = 0.98;
inline bool isNoise(double longer, double shorter) { return longer * kNoise <= shorter; }

LayerCost computeCost(const CostProblem& problem, const Rates& rates, const ExpectedRows& rows);

}  // namespace sluice
