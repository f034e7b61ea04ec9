// check-tasks: whether a program has all that its phases add. Whether the schedule is sound is for verify().
#pragma once

#include "compiler/analysis/finding.h"

namespace sluice {

// Errors: a family that is not dealt exactly once, by its place; an event that nobody signals or waits for; a
// buffer of the runtime without a region.
Status checkTasks(const TaskProgram& program);

}  // namespace sluice
