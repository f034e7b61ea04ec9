// Reads the text of a trace file (runtime/trace/chrome_trace.h) back: its programs, spans and routings.
//
// Value types and free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/api/program.h"
#include "runtime/base/expected.h"
#include "runtime/exec/trace_span.h"

namespace sluice::tools {

// A program in the file, and what its ranks recorded. Spans refer only to what the program has; slots and
// tiles may be any.
struct TracedProgram {
  Program program;
  int firstRank = 0;  // of the first trace
  std::vector<Trace> ranks;
};

struct TraceFile {
  std::string clock;   // of the times: times of files with the same clock can be compared; empty: unknown
  int64_t origin = 0;  // the moment of time 0 on that clock, in nanoseconds
  std::vector<TracedProgram> programs;  // at least one
};

// Errors: the part of the text, what was found and expected.
Expected<TraceFile> parseTrace(const std::string& text);

// As Trace has them: by worker, then by time.
void sortSpans(Trace& trace);

}  // namespace sluice::tools
