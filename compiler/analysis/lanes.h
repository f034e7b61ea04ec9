// assign-cores: one lane per family, its tasks dealt to the seats of the cores that share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/analysis/finding.h"

namespace sluice {

struct Deal {
  std::vector<std::vector<TaskRecord>> seats;  // one list per core, by slot, then tile
  int32_t rotation = 0;
};

// Task (slot, tile) of a window goes to seat (slot * tiles + tile) mod cores; the next window starts at the
// core after the last one dealt to, so that the load is even to one task over any number of windows.
Deal dealTasks(FamilyId family, int32_t window, int32_t tiles, int32_t cores);

// `program` has no lanes; after this it has a lane of priority 0 for each family, of the cores of the
// family's kind. With `communicationCores`, so many vector cores only send and return, and the others do all
// else. Errors: more than 2^20 tasks of a family in a window, by its place; a program that has lanes.
Expected<TaskProgram> assignCores(TaskProgram program, int32_t communicationCores);

}  // namespace sluice
