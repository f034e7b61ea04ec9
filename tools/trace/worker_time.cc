#include "tools/trace/worker_time.h"

#include <algorithm>

#include "runtime/trace/chrome_trace.h"

namespace sluice::tools {

WorkerTime timeOfWorker(const TaskProgram& program, const Trace& trace, int32_t worker) {
  WorkerTime time;
  const TraceSpan* last = nullptr;
  for (const TraceSpan& span : std::ranges::equal_range(trace.spans, worker, {}, &TraceSpan::worker)) {
    const int64_t length = span.end - span.begin;
    // the time between two runs belongs to neither
    if (last && span.kind != SpanKind::kStart) time.overhead += span.begin - last->end;
    last = &span;
    if (span.kind == SpanKind::kTask) {
      time.busy += length;
      ++time.tasks;
    } else if (isWait(span.kind)) {
      (isArrival(program, span.event) ? time.arrival : time.producer) += length;
    } else {
      (span.kind == SpanKind::kStart ? time.start : time.end) += length;
    }
  }
  return time;
}

}  // namespace sluice::tools
