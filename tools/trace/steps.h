// The steps in the traces of all ranks: which runs of an entry belong together, their tables made again,
// which task ended each wait, and how workers spent their time, by cause.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/exec/plan.h"
#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"
#include "runtime/sim/bind_all.h"
#include "runtime/trace/chrome_trace.h"
#include "tools/explain/task_links.h"

namespace sluice::tools {

// One run of an entry at all ranks.
struct TracedStep {
  EntryId entry;
  int64_t number = 0;        // of the runs of the entry
  bool failed = false;       // at some rank
  std::vector<size_t> runs;  // by rank: its span of kind kRun
};

// Whether a run failed at some rank.
bool hasFailed(const std::vector<Trace>& ranks);

// In their order. `ranks` are the traces of all ranks of the program, from rank 0. After a failure steps that
// only some ranks have begun are left out. Errors: a rank is missing, spans were dropped, or ranks have other
// steps.
Expected<std::vector<TracedStep>> findSteps(const TaskProgram& program, const std::vector<Trace>& ranks);

// What each rank routed, for bindAll(). Refers to `ranks`. Error: a run whose routing was not recorded.
Expected<std::vector<RankRouting>> findRouting(const TaskProgram& program, const std::vector<Trace>& ranks,
                                               const TracedStep& step);

// Nanoseconds of a run after its bind.
int64_t timeAfterBind(const Trace& trace, const TraceSpan& run);

// The tasks and waits of a step, by rank.
using StepSpans = std::vector<std::vector<size_t>>;

// Calls use() for every step, with the tables made again. Errors: from findSteps(), findRouting() and
// bindAll(); a task that its step does not have.
using UseStep = std::function<void(const TracedStep&, const AllSteps&, const StepSpans&)>;
Status forSteps(const Plan& plan, const std::vector<Trace>& ranks, const UseStep& use);

// For each wait of a step to whose event tasks of the trace add, the last of them; the last task of another
// rank if the last one of its own ended clearly before the wait.
std::vector<WaitEnd> matchWaitEnds(const AllSteps& steps, const std::vector<Trace>& ranks,
                                   const StepSpans& spans);

// Finds the ends of the waits of all steps. Errors: from forSteps().
Expected<std::vector<WaitEnd>> findWaitEnds(const Plan& plan, const std::vector<Trace>& ranks);

// A trace file of all ranks, with an arrow to each wait from the task that ended it, if these can be found.
std::string chromeTraceWithArrows(const Plan& plan, const std::vector<Trace>& ranks);

// How one worker spent its time, by cause, in nanoseconds.
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
