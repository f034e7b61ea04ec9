// Explanation: what every node of a graph became and why, for people (text) and tools (JSON).
//
// Value types and free functions. docs/SCHEDULE.md explains the terms; nothing is measured.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/decision.h"
#include "compiler/dialect/moe.h"
#include "compiler/report/memory_report.h"
#include "runtime/program/verify.h"

namespace sluice {

// An event that a family waits for or signals.
struct EventExplanation {
  EventId event;
  std::string when;              // "until all rows of the slot have arrived"; empty for a signal
  std::vector<std::string> why;  // "'dispatch' of any rank writes 'rows_x'", one reason per line
};

// The bytes and FLOPs of a family's tasks in one step of this rank, as formulas.
//
// Bytes count every operand once, as if repeated reads within a task came from a cache. A dispatch reads the
// row of a token once for every expert that the token goes to. FLOPs count an addition, a multiplication, a
// maximum, an exponential or a tanh of the op's formula as one each; copies count none.
struct FamilyWork {
  Formula read;     // bytes
  Formula written;  // bytes
  Formula flops;
};

struct FamilyExplanation {
  FamilyId family;
  int64_t tasksInWindow = 0;
  int64_t tasksInStep = 0;  // in a balanced step with max_tokens
  int32_t busyCores = 0;    // seats of the lane that have tasks in its table
  int32_t cores = 0;        // seats of the lane
  int32_t firstCore = 0;    // first core of the lane, among the cores of its kind
  int32_t priority = 0;     // of its lane; smaller numbers first
  FamilyOrder order;
  std::vector<std::string> why;  // space, slots, tiles, and the compiler's decisions about it
  std::vector<EventExplanation> waits;
  std::vector<EventExplanation> signals;
  FamilyWork work;
};

// Why the buffers of one region never conflict; by RegionId, one reason per line.
using SharingReasons = std::vector<std::vector<std::string>>;

struct Explanation {
  std::vector<FamilyExplanation> families;  // by FamilyId
  MemoryReport memory;
  SharingReasons sharing;
  std::vector<Decision> decisions;  // about the whole program
};

// `graph` is what the program was compiled from, with derived entries: it has the declared sizes and their
// places.
Explanation explain(const VerifiedProgram& program, moe::GraphOp graph,
                    const std::vector<Decision>& decisions);

std::string printExplanation(const TaskProgram& program, const Explanation& explanation);
std::string printExplanationJson(const TaskProgram& program, const Explanation& explanation);

}  // namespace sluice
