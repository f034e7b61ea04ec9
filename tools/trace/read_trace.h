// Reads a trace file (runtime/trace/chrome_trace.h) back: its programs, spans and routings.
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

// At least one program. Errors: the part of the text, what was found and expected.
Expected<std::vector<TracedProgram>> parseTrace(const std::string& text);

// Errors begin with the path.
Expected<std::vector<TracedProgram>> readTrace(const std::string& path);

// As Trace has them: by worker, then by time.
void sortSpans(Trace& trace);

}  // namespace sluice::tools
