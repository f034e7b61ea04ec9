// The step that a replay runs: slots and pieces of the busiest rank, as bind would cut and number them for
// the expected routing, of all its experts or of some that stand for all.
//
// Value type and a free function of values; the same input gives the same step. All ranks are taken to be
// alike: what this rank sends mirrors what it receives.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/analysis/cost/cost.h"

namespace sluice {

struct ReplaySlot {
  int32_t expert = 0;
  int32_t rows = 0;
  int32_t group = 0;  // of slots; where the program has groups
};

struct ReplayPiece {
  int32_t slot = 0;
  int32_t expert = 0;
  int32_t rows = 0;
  bool own = false;  // begins and ends at this rank
};

struct ReplayGroup {
  int32_t expert = 0;
  int32_t rows = 0;
  int32_t slots = 0;
};

struct ReplayStep {
  double part = 1;  // of the step: experts that are replayed, by experts of the rank
  int32_t tokens = 0;
  int32_t tokenSlots = 0;
  std::vector<int32_t> expertRows;  // by expert
  std::vector<int32_t> expertSlots;
  std::vector<ReplaySlot> slots;     // numbered in the expected order of arrival
  std::vector<ReplayGroup> groups;   // likewise, by the latest of their slots; empty where there are none
  std::vector<ReplayPiece> sends;    // in sending order
  std::vector<ReplayPiece> returns;  // by slot, inside a slot by source
};

// `experts` of the rank's, at least 1; they and their share of the tokens are replayed.
ReplayStep replayStepOf(const CostProblem& problem, const ExpectedRows& rows, int32_t experts);

// One slot of a space: where it belongs, and the work of its tasks.
struct ReplayView {
  static constexpr int64_t kNone = -1;

  int64_t slot = kNone;  // of rows
  int64_t group = kNone;
  int64_t expert = kNone;
  double rows = 0;      // or tokens
  double reuse = 1;     // tasks that read the same weight one after the other
  bool leaves = false;  // goes to another rank
};

// Live slots of a space, and the counters of an event array.
int64_t slotsIn(const ReplayStep& step, SpaceKind kind);
int64_t countersIn(const ReplayStep& step, EventSpace space);

ReplayView viewOf(const CostProblem& problem, const ReplayStep& step, SpaceKind kind, int64_t index);

// The counter that a task of the slot `index` means, whose view is `view`; kNone: there is none.
int64_t counterOf(EventSpace space, const ReplayView& view, int64_t index);

}  // namespace sluice
