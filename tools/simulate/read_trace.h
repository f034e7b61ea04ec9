// The times of a recorded run, from a trace that `sluice run --trace` wrote (runtime/trace/chrome_trace.h).
//
// Value types and a free function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

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
  std::vector<MeasuredEntry> entries;    // those that ran, in the order of the program
  std::vector<MeasuredFamily> families;  // by FamilyId
};

// Reads the trace of one run of each entry at all ranks of `program`. Errors begin with the path: not a
// trace; one of another program (what it has that the program has not); one with dropped spans, or of
// several runs of an entry.
Expected<MeasuredRun> readTrace(const TaskProgram& program, const std::string& path);

}  // namespace sluice::tools
