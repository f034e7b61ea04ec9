#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/run_job.h"
#include "tools/overlap/overlap_report.h"

namespace sluice::tools {
namespace {

std::string reportEntries(const Job& job, const std::vector<RankFigures>& ranks) {
  std::string text = fmt::format("{:<12}{:>10}{:>8}{:>10}{:>11}{:>11}{:>11}{:>10}\n", "entry", "rows", "skew",
                                 "tasks", "bind ms", "best ms", "median ms", "TFLOP/s");
  for (size_t i = 0; i < job.entries.size(); ++i) {
    int64_t rows = 0, hottest = 0, tasks = 0;
    double flops = 0;
    std::vector<double> bind(static_cast<size_t>(job.repeat)), seconds(bind.size());
    for (const RankFigures& rank : ranks) {
      const auto at = [&](size_t n) -> const RunStats& { return rank.stats[n * job.entries.size() + i]; };
      const RunStats& last = at(seconds.size() - 1);
      rows += last.rows;
      flops += countFlops(job.program.tables(), job.entries[i], last.rows, rank.tokens);
      hottest = std::max(hottest, last.rows);
      tasks += last.tasks;
      // an entry takes as long as its slowest rank
      for (size_t n = 0; n < seconds.size(); ++n) {
        bind[n] = std::max(bind[n], at(n).bindSeconds);
        seconds[n] = std::max(seconds[n], at(n).runSeconds);
      }
    }
    std::sort(bind.begin(), bind.end());
    std::sort(seconds.begin(), seconds.end());
    const double skew =
        rows > 0 ? static_cast<double>(hottest * std::ssize(ranks)) / static_cast<double>(rows) : 1;
    text += fmt::format("{:<12}{:>10}{:>8.2f}{:>10}{:>11.3f}{:>11.3f}{:>11.3f}{:>10.4f}\n",
                        job.program.tables().at(job.entries[i]).name, rows, skew, tasks, bind.front() * 1e3,
                        seconds.front() * 1e3, seconds[seconds.size() / 2] * 1e3,
                        seconds.front() > 0 ? flops / seconds.front() * 1e-12 : 0.0);
  }
  return text;
}

// The memory of the packed weights of all ranks; empty if none are packed.
std::string reportPacked(const Job& job, const std::vector<RankFigures>& ranks) {
  if (job.weights == Weights::kOrdinary) return {};
  PackedWeights all;
  for (const RankFigures& rank : ranks) {
    all.bytes += rank.packed.bytes;
    all.panels += rank.packed.panels;
    all.withoutRoom += rank.packed.withoutRoom;
  }
  const std::string left = all.withoutRoom > 0 ? fmt::format(", {} without room", all.withoutRoom) : "";
  return fmt::format("packed weights: {:.1f} MiB, {} panels{}\n", static_cast<double>(all.bytes) / (1 << 20),
                     all.panels, left);
}

// If ranks are threads, the rank that finished first saw the memory of all.
std::string describePages(const std::vector<RankFigures>& ranks, bool areProcesses) {
  HugePageUse use;
  for (const RankFigures& rank : ranks) {
    if (areProcesses) {
      use.residentBytes += rank.pages.residentBytes;
      use.hugeBytes += rank.pages.hugeBytes;
      if (use.refusal.empty()) use.refusal = rank.pages.refusal;
    } else if (rank.pages.residentBytes > use.residentBytes || use.residentBytes == 0) {
      use = rank.pages;
    }
  }
  return describe(use) + "\n";
}

}  // namespace

std::string reportRun(const Job& job, const std::vector<RankFigures>& ranks, bool areProcesses) {
  return reportEntries(job, ranks) + reportPacked(job, ranks) + describePages(ranks, areProcesses);
}

std::string overlapText(const std::vector<EntryOverlap>& overlap) {
  const std::span<const Column> columns = overlapColumns();
  std::string text = fmt::format("\n{:<12}{}\n", "overlap", textLine(columns, listHeads(columns)));
  for (const EntryOverlap& entry : overlap)
    text += fmt::format("{:<12}{}\n", entry.entry, textLine(columns, overlapCells(entry)));
  return text +
         R"(T: a step; Tcomm, Tcompute: with communication or computation alone; medians of the slowest rank.
Overlap is the larger part over T. Orders are the pieces of rows and signals to other ranks; puts,
signals, messages and flushes are counted by the transport. Messages are puts, and signals that
went out together.
)";
}

}  // namespace sluice::tools
