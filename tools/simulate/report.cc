#include "tools/simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/program/text_names.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxWaits = 8;

double milli(SimTime time) { return toSeconds(time) * 1e3; }

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

template <class Field>
double computeMean(const SimResult& result, Field field) {
  double sum = 0;
  for (const SimRankTimes& rank : result.ranks) sum += static_cast<double>(rank.*field);
  return sum / static_cast<double>(std::max<size_t>(1, result.ranks.size()));
}

int64_t emptyTasks(const SimResult& result) {
  return std::accumulate(result.families.begin(), result.families.end(), int64_t{0},
                         [](int64_t sum, const SimFamily& family) { return sum + family.empty; });
}

std::string useHeads(const SimResult& result) {
  return result.kindsApart ? fmt::format("{:>9}{:>10}", "cube %", "vector %")
                           : fmt::format("{:>9}{:>12}", "cores %", "products %");
}

std::string useCells(const TaskProgram& program, const SimResult& result) {
  if (result.kindsApart)
    return fmt::format("{:>9.1f}{:>10.1f}", 100 * coreUse(program, result, CoreKind::kCube),
                       100 * coreUse(program, result, CoreKind::kVector));
  return fmt::format("{:>9.1f}{:>12.1f}", 100 * coreUse(program, result, CoreKind::kUnified),
                     percent(computeMean(result, &SimRankTimes::products),
                             static_cast<double>(result.end) * result.workers));
}

std::string entryTable(const TaskProgram& program, const std::vector<SimResult>& results) {
  std::string text = fmt::format("{:<18}{:>11}{:>10}{:>8}{:>11}{}{:>10}{:>12}\n", "entry", "ms", "tasks",
                                 "empty", "max/mean", useHeads(results.front()), "comm ms", "exposed ms");
  SimTime sum = 0;
  for (const SimResult& result : results) {
    sum += result.end;
    text += fmt::format("{:<18}{:>11.4f}{:>10}{:>8}{:>11.2f}{}{:>10.4f}{:>12.4f}\n",
                        program.at(result.entry).name, milli(result.end), result.tasks, emptyTasks(result),
                        rowSkew(result), useCells(program, result),
                        computeMean(result, &SimRankTimes::outstanding) / kSimTicks * 1e3,
                        computeMean(result, &SimRankTimes::exposed) / kSimTicks * 1e3);
  }
  if (results.size() > 1) text += fmt::format("{:<18}{:>11.4f}\n", "all", milli(sum));
  return text;
}

std::string familyTable(const TaskProgram& program, const std::vector<SimResult>& results) {
  std::string text = fmt::format("{:<40}{:>10}{:>8}{:>12}{:>7}{:>11}{:>11}{:>11}\n", "family", "tasks",
                                 "empty", "ms", "%", "mean us", "first ms", "last ms");
  for (const SimResult& result : results) {
    SimTime all = 0;
    for (const SimFamily& family : result.families) all += family.busy;
    for (size_t f = 0; f < result.families.size(); ++f) {
      const SimFamily& family = result.families[f];
      if (family.tasks == 0) continue;
      text +=
          fmt::format("{:<40}{:>10}{:>8}{:>12.4f}{:>7.1f}{:>11.3f}{:>11.4f}{:>11.4f}\n",
                      text::nameInEntry(program, program.families[f]), family.tasks, family.empty,
                      milli(family.busy), percent(static_cast<double>(family.busy), static_cast<double>(all)),
                      milli(family.busy) * 1e3 / static_cast<double>(family.tasks), milli(family.firstStart),
                      milli(family.lastEnd));
    }
  }
  return text;
}

std::string slowestText(const TaskProgram& program, const SimResult& result) {
  if (result.ranks.empty() || result.end == 0) return {};
  const size_t slowest = slowestRank(result);
  const SimRankTimes& rank = result.ranks[slowest];
  const auto part = [&](SimTime time) {
    return percent(static_cast<double>(time), static_cast<double>(rank.end) * result.workers);
  };
  const SimTime busy = std::accumulate(rank.busy.begin(), rank.busy.end(), SimTime{0});
  std::string text = fmt::format(
      "{}: rank {} ends last, with {} rows; its workers: {:.1f}% tasks, {:.1f}% waiting for rows, {:.1f}% "
      "for "
      "tasks, {:.1f}% nothing left; communication {:.4f} ms, of which {:.4f} ms exposed\n",
      program.at(result.entry).name, slowest, rank.rows, part(busy), part(rank.arrival), part(rank.producer),
      part(rank.idle), milli(rank.outstanding), milli(rank.exposed));
  std::vector<SimWait> waits = rank.waits;
  std::ranges::stable_sort(waits, std::greater<>(), &SimWait::time);
  if (waits.size() > kMaxWaits) waits.resize(kMaxWaits);
  for (const SimWait& wait : waits)
    text += fmt::format("  {:>11.4f} ms in {:>6} waits for {} before {}\n", milli(wait.time), wait.waits,
                        wait.event ? program.at(wait.event).name : "?", program.at(wait.family).name);
  return text;
}

}  // namespace

double rowSkew(const SimResult& result) {
  int64_t most = 0;
  for (const SimRankTimes& rank : result.ranks) most = std::max(most, rank.rows);
  const double mean = computeMean(result, &SimRankTimes::rows);
  return mean > 0 ? static_cast<double>(most) / mean : 1;
}

size_t slowestRank(const SimResult& result) {
  return static_cast<size_t>(std::ranges::max_element(result.ranks, {}, &SimRankTimes::end) -
                             result.ranks.begin());
}

double coreUse(const TaskProgram& program, const SimResult& result, CoreKind kind) {
  double busy = 0;
  for (const SimRankTimes& rank : result.ranks)
    for (size_t k = 0; k < rank.busy.size(); ++k)
      if (!result.kindsApart || k == static_cast<size_t>(kind)) busy += static_cast<double>(rank.busy[k]);
  const double cores = result.kindsApart ? program.coreCount(kind) : result.workers;
  const double all = cores * static_cast<double>(result.end) * static_cast<double>(result.ranks.size());
  return all > 0 ? busy / all : 0;
}

std::string simulationText(const TaskProgram& program, const SimDevice& device,
                           const std::vector<SimResult>& results) {
  if (results.empty()) return {};
  std::string text = fmt::format(
      "predicted for target '{}', {} ranks, {} workers per rank; what the model leaves out: "
      "docs/SIMULATOR.md\n\n",
      device.name, results.front().ranks.size(), device.workers);
  text += entryTable(program, results) + "\n" + familyTable(program, results) + "\n";
  for (const SimResult& result : results) text += slowestText(program, result);
  return text +
         "\ncomm: rows on their way, or a task that sends them, mean of the ranks; exposed: no matrix or "
         "unified "
         "core\nof the rank computes meanwhile; families: time of all their tasks, at all ranks\n";
}

}  // namespace sluice::tools
