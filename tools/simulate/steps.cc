#include "tools/simulate/steps.h"

#include <map>
#include <utility>

#include "tools/trace/read_trace.h"

namespace sluice::tools {

Expected<BoundRouting> bindStep(const Plan& plan, EntryId entry, const StepRouting& routing) {
  const EntryId routes = plan.at(entry).routing;
  return bindAll(plan, routes, findRouting(plan.program(), routes, routing));
}

Expected<std::vector<SimResult>> simulateSteps(const Plan& plan, const std::vector<EntryId>& entries,
                                               const StepRouting& routing, const SimDevice& device,
                                               bool spans, const std::function<void(size_t)>& before) {
  std::map<uint32_t, BoundRouting> bound;  // by the entry that routes
  std::vector<SimResult> results;
  for (const EntryId entry : entries) {
    if (before) before(results.size());
    const EntryId routes = plan.at(entry).routing;
    if (!bound.contains(routes.value)) {
      Expected<BoundRouting> tables = bindStep(plan, entry, routing);
      if (!tables) return tables.error();
      bound.emplace(routes.value, std::move(*tables));
    }
    Expected<SimResult> result = simulateEntry(plan, entry, bound.at(routes.value).of(plan, entry),
                                               device.rates, {device.workers, spans});
    if (!result) return result.error();
    results.push_back(std::move(*result));
  }
  return results;
}

std::vector<Trace> collectTraces(const std::vector<SimResult>& results) {
  std::vector<Trace> joined(results.empty() ? 0 : results.front().traces.size());
  int64_t begin = 0;
  for (const SimResult& result : results) {
    for (size_t rank = 0; rank < joined.size(); ++rank) {
      TraceSpan run;
      run.kind = SpanKind::kRun;
      run.entry = result.entry;
      run.begin = begin;
      run.end = begin + toNanoseconds(result.ranks[rank].end);
      run.index = std::ssize(joined[rank].routings);
      run.slot = run.index + 1;
      joined[rank].routings.push_back(result.traces[rank].routings.front());
      joined[rank].spans.push_back(run);
      for (TraceSpan span : result.traces[rank].spans) {
        span.begin += begin;
        span.end += begin;
        joined[rank].spans.push_back(span);
      }
    }
    begin += toNanoseconds(result.end) + 1;
  }
  for (Trace& trace : joined) sortSpans(trace);
  return joined;
}

}  // namespace sluice::tools
