// A trace in the JSON trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// A process is a rank. Its tracks are the rank's own (steps with bind and exchange), one per worker (times
// when it had nothing to do), and one per core and lane (waits and tasks). Under "sluice" the file has the
// programs, the routing of each run and the run that failed, so that it can be read back without them
// (tools/trace/read_trace.h). docs/TRACE.md explains how to read it. Free functions on values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"

namespace sluice {

// A span of one rank that ended a wait, the index of another span, maybe of another rank.
struct WaitEnd {
  size_t rank = 0, span = 0;          // of the task; rank counts from the first trace
  size_t waitRank = 0, waitSpan = 0;  // of the wait
};

// `ranks`: one trace per rank. Times count from the first span of any rank. For a file that has not all
// ranks, `clock` names the clock of the spans (nameOfClock()), so that files can be put together.
std::string chromeTrace(const TaskProgram& program, const std::vector<Trace>& ranks,
                        std::string_view clock = {});

// What ranks of one of several programs did.
struct ProgramTrace {
  const TaskProgram* program = nullptr;
  int firstRank = 0;  // the rank of the first trace
  std::vector<Trace> ranks;
  std::vector<WaitEnd> waitEnds = {};  // drawn as arrows
};

// The same for several programs, at least one, on one clock: a process is a rank in a program.
std::string chromeTrace(const std::vector<ProgramTrace>& programs, std::string_view clock = {});

// Whether a wait for the event is one for rows that ranks send.
bool isArrival(const TaskProgram& program, EventId event);
// "arrival" if the event counts rows from other ranks (or this one), "producer" if a task of this rank
// signals it.
const char* causeOfWait(const TaskProgram& program, EventId event);

}  // namespace sluice
