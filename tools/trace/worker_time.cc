#include "tools/trace/worker_time.h"

namespace sluice::tools {

WorkerTime timeOfWorker(const TaskProgram& program, const Trace& trace, int32_t worker) {
  WorkerTime time;
  const TraceSpan* last = nullptr;
  for (const TraceSpan& span : trace.spans) {
    if (span.worker != worker) continue;
    const int64_t length = span.end - span.begin;
    // the time between two runs belongs to neither
    if (last && span.kind != SpanKind::kStart) time.overhead += span.begin - last->end;
    last = &span;
    if (span.kind == SpanKind::kTask) {
      time.busy += length;
      ++time.tasks;
    } else if (span.kind == SpanKind::kWait) {
      const bool isArrival = span.event && program.at(span.event).remote;
      (isArrival ? time.arrival : time.producer) += length;
    } else {
      (span.kind == SpanKind::kStart ? time.start : time.end) += length;
    }
  }
  return time;
}

}  // namespace sluice::tools
