// The times of a recorded run, and its routing for a simulation of the same.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "tools/simulate/step_routing.h"
#include "tools/trace/read_trace.h"

namespace sluice::tools {

struct MeasuredFamily {
  int64_t tasks = 0;
  double seconds = 0;  // of all its tasks, at all ranks
};

struct MeasuredEntry {
  EntryId entry;
  double seconds = 0;  // after bind, of the rank that took longest
};

struct MeasuredRun {
  int workers = 0;                       // per rank
  std::vector<MeasuredEntry> entries;    // those that ran, in that order
  std::vector<MeasuredFamily> families;  // by FamilyId
  StepRouting routing;
};

// Measures one run of each entry, or of some, at all ranks. Errors: from findSteps() and findRouting();
// several runs of an entry, or none of any.
Expected<MeasuredRun> measureRun(const TracedProgram& traced);

}  // namespace sluice::tools
