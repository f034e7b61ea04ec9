// How a worker spent the time of a trace, by cause.
//
// Value type and a free function of values; any thread.
#pragma once

#include <cstdint>

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

}  // namespace sluice::tools
