// A simulation against a recorded run of the same step. Free function of values.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "runtime/sim/sim_result.h"
#include "tools/simulate/measured.h"

namespace sluice::tools {

// Predicted and measured times of families and entries, and their differences in percent of the measured.
// `results` has the entries of `measured`, in that order. Error: other numbers of tasks, so that it is the
// run of another routing (family, found, expected).
Expected<std::string> compareText(const TaskProgram& program, const std::vector<SimResult>& results,
                                  const MeasuredRun& measured);

}  // namespace sluice::tools
