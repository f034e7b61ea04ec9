#include "tools/simulate/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "runtime/program/text_names.h"
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

std::string line(const std::string& name, int64_t tasks, double measured, double predicted) {
  return fmt::format("{:<40}{:>10}{:>14.4f}{:>14.4f}{:>10}\n", name, tasks, measured * 1e3, predicted * 1e3,
                     measured > 0 ? fmt::format("{:+.1f}", 100 * (predicted / measured - 1)) : "-");
}

std::string head(const char* name) {
  return fmt::format("{:<40}{:>10}{:>14}{:>14}{:>10}\n", name, "tasks", "measured ms", "predicted ms",
                     "error %");
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

Expected<std::string> compareText(const TaskProgram& program, const std::vector<SimResult>& results,
                                  const MeasuredRun& measured) {
  assert(results.size() == measured.entries.size());
  std::string families = head("family"), entries = head("entry, after bind");
  double allMeasured = 0, allPredicted = 0;
  int64_t allTasks = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const SimResult& result = results[i];
    double busyMeasured = 0, busyPredicted = 0;
    for (size_t f = 0; f < result.families.size(); ++f) {
      if (program.families[f].entry != result.entry) continue;
      const MeasuredFamily& run = measured.families[f];
      const std::string name = text::nameInEntry(program, program.families[f]);
      if (run.tasks != result.families[f].tasks)
        return Error{fmt::format("family '{}': found {} tasks, expected {} for this routing", name, run.tasks,
                                 result.families[f].tasks)};
      if (run.tasks == 0) continue;
      const double predicted = toSeconds(result.families[f].busy);
      families += line(name, run.tasks, run.seconds, predicted);
      busyMeasured += run.seconds;
      busyPredicted += predicted;
    }
    families +=
        line(program.at(result.entry).name + ", all tasks", result.tasks, busyMeasured, busyPredicted);
    entries +=
        line(program.at(result.entry).name, result.tasks, measured.entries[i].seconds, toSeconds(result.end));
    allMeasured += measured.entries[i].seconds;
    allPredicted += toSeconds(result.end);
    allTasks += result.tasks;
  }
  if (results.size() > 1) entries += line("all", allTasks, allMeasured, allPredicted);
  return families + "\n" + entries;
}

}  // namespace sluice::tools
