// The times of a recorded run, its routing for a simulation of the same, and the comparison of both.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "runtime/sim/sim_result.h"
#include "tools/simulate/steps.h"
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

// Compares a simulation with a recorded run of the same step: predicted and measured times of families and
// entries, and their differences in percent of the measured. `results` has the entries of `measured`, in that
// order. Error: other numbers of tasks, so that it is the run of another routing (family, found, expected).
Expected<std::string> compareText(const TaskProgram& program, const std::vector<SimResult>& results,
                                  const MeasuredRun& measured);

}  // namespace sluice::tools
