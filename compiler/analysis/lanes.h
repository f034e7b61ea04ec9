// assign-cores: one lane per family, its tasks dealt to the seats of the cores that share it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/analysis/cores.h"
#include "compiler/analysis/finding.h"

namespace sluice {

// `program` has no lanes; after this it has a lane of priority 0 for each family, of the cores that
// coresFor() gives it. Errors: more than 2^20 tasks of a family in a window, by its place; a program that has
// lanes.
Expected<TaskProgram> assignCores(TaskProgram program, const CommunicationCores& communication);

}  // namespace sluice
