// The phases of a compilation after form-tasks, in order: each takes a program and returns it with its
// additions.
//
// Free functions of plain values; they accept any program whose ids are valid indices of its tables.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compiler/analysis/finding.h"
#include "compiler/analysis/lanes.h"
#include "compiler/analysis/tiles.h"
#include "runtime/program/verify.h"

namespace sluice {

struct TaskOptions {
  CutSizes sizes;
  Windows windows;
  CommunicationCores communication;
  std::vector<LaneRule> laneRules;  // by EntryId; missing: kFromEnd
};

struct TaskPhase {
  std::string_view name;
  Expected<TaskProgram> (*run)(TaskProgram program, const TaskOptions& options);
};

std::span<const TaskPhase> taskPhases();

// The program after all phases, verified.
Expected<VerifiedProgram> completeProgram(TaskProgram program, const TaskOptions& options);

}  // namespace sluice
