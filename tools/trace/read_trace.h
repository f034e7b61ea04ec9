// Reads the text of a trace file (runtime/trace/chrome_trace.h) back: its programs, spans and routings; and
// puts the files of the ranks of a job together.
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

// Reads one file, or one per rank, put together as one. "{rank}" in the path stands for the files of the
// ranks of a job, of which some may be missing. Then a program has a trace of every rank, empty if no file
// has it. Groups of ranks with the same program become several programs. Times of files with other clocks
// than the first file's are aligned at the last exchange that they have in common, or else at their ends.
// Errors begin with the path: from parseTrace(); no file; times that cannot be of one job.
Expected<std::vector<TracedProgram>> readTrace(const std::string& path);

}  // namespace sluice::tools
