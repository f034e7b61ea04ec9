// Draft: a task program during the passes, as plain values.
//
// A pass reads a Draft from the IR, asks one function of this folder, and writes its answer to the IR. Until
// lanes exist, the waits and signals of a family are in `sync`; in the finished program the same ids are in
// every record of the family.
#pragma once

#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// At most two of each in a program; an analysis may see more.
struct Sync {
  std::vector<EventId> waits;
  std::vector<EventId> signals;
  friend bool operator==(const Sync&, const Sync&) = default;
};

struct Draft {
  TaskProgram program;
  std::vector<Sync> sync;  // by FamilyId
};

}  // namespace sluice
