// Prints the measurements of a layer whose ranks are threads or processes, as text, as rows of a Markdown
// table and as JSON. Free functions of values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/link_probe.h"
#include "tools/bench/measure_ranks.h"
#include "tools/bench/report.h"

namespace sluice::tools {

struct RanksReport {
  std::string transport;  // "threads", "shm", "mpi"
  std::vector<RanksSamples> samples;
  std::optional<LinkFigures> link;  // between two ranks
};

// The number of units over which the processor time of a layer is divided: its threads, but at most the units
// of the machine; 0 for wall time, as in computeFigures().
int countCpuUnits(const RanksSamples& samples, ClockKind clock);

// An entry's time relative to its time in the same layer on the first number of ranks; 0 if that was not
// measured.
double overFirst(const RanksReport& report, size_t ranks, size_t entry, ClockKind clock);

std::string formatText(const RanksReport& report, const BenchOptions& options, const Machine& machine);
std::string formatMarkdown(const RanksReport& report, const BenchOptions& options);
std::string formatJson(const RanksReport& report, const BenchOptions& options, const Machine& machine);

}  // namespace sluice::tools
