#include "tools/simulate/measured.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/trace/steps.h"

namespace sluice::tools {
namespace {

double measureDuration(const TraceSpan& span) { return static_cast<double>(span.end - span.begin) * 1e-9; }

// After bind, of the rank that took longest.
double measureDuration(const std::vector<Trace>& ranks, const TracedStep& step) {
  int64_t longest = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    longest = std::max(longest, timeAfterBind(ranks[rank], ranks[rank].spans[step.runs[rank]]));
  return static_cast<double>(longest) * 1e-9;
}

}  // namespace

Expected<MeasuredRun> measureRun(const TracedProgram& traced) {
  const TaskProgram& program = traced.program.tables();
  const Expected<std::vector<TracedStep>> steps = findSteps(program, traced.ranks);
  if (!steps) return steps.error();
  MeasuredRun run;
  run.families.resize(program.families.size());
  run.routing.recorded.resize(program.entries.size());
  for (const TracedStep& step : *steps) {
    if (std::ranges::find(run.entries, step.entry, &MeasuredEntry::entry) != run.entries.end())
      return Error{
          fmt::format("found several runs of entry '{}', expected one", program.at(step.entry).name)};
    run.entries.push_back({step.entry, measureDuration(traced.ranks, step)});
    const Expected<std::vector<RankRouting>> routing = findRouting(program, traced.ranks, step);
    if (!routing) return routing.error();
    const Entry& entry = program.at(step.entry);
    std::vector<TracedRouting>& recorded =
        run.routing.recorded[entry.routes() ? step.entry.value : entry.routing.value];
    recorded.clear();
    for (const RankRouting& rank : *routing)
      recorded.push_back({static_cast<int32_t>(rank.tokens), {rank.expertIds.begin(), rank.expertIds.end()}});
  }
  if (run.entries.empty()) return Error{"found no run of an entry, expected one of each"};
  for (const Trace& trace : traced.ranks)
    for (const TraceSpan& span : trace.spans) {
      run.workers = std::max(run.workers, span.worker + 1);
      if (span.kind != SpanKind::kTask) continue;
      MeasuredFamily& family = run.families[span.family.value];
      ++family.tasks;
      family.seconds += measureDuration(span);
    }
  return run;
}

}  // namespace sluice::tools
