// The cost model: how long the tasks of a program take on a device, for an expected routing.
//
// Plain values in, plain values out; no state. It tells better sizes from worse ones: busy time of the cores,
// what an uneven deal adds, and what cores wait for at the ends of chains.
//
//   time of a task   = product + vector work + memory that is not hidden + cost of a task
//   time of an entry = max(work / cores, bytes to other ranks / link) + uneven deal + ends of chains +
//   latency
//
// Where matrix and vector cores are apart, work / cores is that of the kind that takes longest, each kind as
// if it had the memory for itself. replay.h follows the schedule task by task.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/cost/rates.h"
#include "compiler/analysis/cost/routing.h"
#include "compiler/analysis/tiles.h"
#include "runtime/program/program.h"

namespace sluice {

// What is costed: limits, spaces, buffers, entries, events and families of a program, whatever sizes it is
// cut by. Lanes and regions are not looked at. Without events nothing can be said of what waits for what.
struct CostProblem {
  TaskProgram program;
  int32_t communicationCores = 0;  // of the vector cores, those that do nothing else; 0: all do all

  SpaceKind spaceOf(const Family& family) const { return program.at(family.space).kind; }
  // Of a slot of that space; 0: the program has none.
  int32_t slotSize(SpaceKind space) const;
  StepShape step() const;
};

// Cores that run the same families: all of them where they are unified; else those of a kind, and apart from
// them the vector cores that only communicate.
struct CorePool {
  CoreKind kind = CoreKind::kUnified;
  bool communication = false;
  int32_t cores = 1;
};
std::vector<CorePool> poolsOf(const CostProblem& problem);

// Which of them runs the family.
size_t poolOf(const std::vector<CorePool>& pools, const CostProblem& problem, const Family& family);

// Cores of the family's kind, at least 1.
int32_t coresOfKind(const CostProblem& problem, const Family& family);

// Tasks of a family for each slot of its space, by its tiling.
int64_t tilesOf(const Family& family);

struct FamilyCost {
  double tasks = 0;    // of one step at the busiest rank
  double longest = 0;  // seconds of its longest task
  double seconds = 0;  // of all its tasks together
  double product = 0;  // of `seconds`: multiplying
  double memory = 0;   // of `seconds`: waiting for memory
  double link = 0;     // bytes it sends to other ranks
};

struct LayerCost {
  std::vector<FamilyCost> families;  // by FamilyId
  std::vector<double> entries;       // seconds
  double seconds = 0;                // of all entries
  double busy = 0;                   // of `seconds`: what a core works on average
};

// The model tells times no better than this: what takes more than 98% of another takes as long.
inline constexpr double kNoise = 0.98;
inline bool isNoise(double longer, double shorter) { return longer * kNoise <= shorter; }

LayerCost costOf(const CostProblem& problem, const Rates& rates, const ExpectedRows& rows);

// Seconds of one product of that shape alone, everything in cache.
double productSeconds(const MatrixRates& matrix, const ProductRate& rate, double m, double n, double k);

}  // namespace sluice
