// A trace in the JSON trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// A process is a rank, and its tracks are: the rank's own steps with bind and exchange, for each worker when
// it had nothing to do, and for each core and lane the waits and the tasks. docs/TRACE.md explains how to
// read it. Free functions on values; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"

namespace sluice {

// By rank. Times count from the first span of any rank.
std::string chromeTrace(const TaskProgram& program, const std::vector<Trace>& ranks);

// "arrival" of rows from other ranks (or this one) or "producer", a task of this rank.
const char* causeOfWait(const TaskProgram& program, EventId event);

}  // namespace sluice
