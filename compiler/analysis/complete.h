// check-tasks: whether a program has everything that the phases add. verify() checks that the schedule is
// sound.
#pragma once

#include "compiler/analysis/finding.h"

namespace sluice {

// Errors: a family that is not dealt exactly once, with its place; an event that no family signals or waits
// for; a buffer of the runtime without a region.
Status checkTasks(const TaskProgram& program);

}  // namespace sluice
