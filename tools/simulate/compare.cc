#include "tools/simulate/compare.h"

#include <fmt/format.h>

#include <cassert>

#include "runtime/program/text_names.h"

namespace sluice::tools {
namespace {

std::string line(const std::string& name, int64_t tasks, double measured, double predicted) {
  return fmt::format("{:<40}{:>10}{:>14.4f}{:>14.4f}{:>10}\n", name, tasks, measured * 1e3, predicted * 1e3,
                     measured > 0 ? fmt::format("{:+.1f}", 100 * (predicted / measured - 1)) : "-");
}

std::string head(const char* name) {
  return fmt::format("{:<40}{:>10}{:>14}{:>14}{:>10}\n", name, "tasks", "measured ms", "predicted ms",
                     "error %");
}

}  // namespace

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
