// Summarises a trace as tables of text: time by family, by worker and cause, and the longest waits.
//
// Free functions on values; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"

namespace sluice::tools {

// How one worker spent its time, in nanoseconds.
struct WorkerTime {
  int64_t tasks = 0;     // number of tasks
  int64_t busy = 0;      // kernels and signals
  int64_t overhead = 0;  // between spans: finding and fetching a task
  int64_t arrival = 0;   // waits for rows that a rank sends
  int64_t producer = 0;  // waits for a task of this rank
  int64_t start = 0;
  int64_t end = 0;
  int64_t total() const { return busy + overhead + arrival + producer + start + end; }
};

// Over all spans of `worker`.
WorkerTime timeOfWorker(const TaskProgram& program, const Trace& trace, int32_t worker);

std::string traceSummary(const TaskProgram& program, const std::vector<Trace>& ranks);

}  // namespace sluice::tools
