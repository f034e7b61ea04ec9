// What was measured of a layer whose ranks are threads or processes, as text, as rows of a Markdown table and
// as JSON. Free functions of values.
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

// Units that share the processor time of a layer: its threads, or the units of the machine where it has
// fewer; 0 for wall time, as in figuresOf().
int cpuUnitsOf(const RanksSamples& samples, ClockKind clock);

// How many times as long as with the first number of ranks an entry takes; 0 where that was not measured.
double overFirst(const RanksReport& report, size_t ranks, size_t entry, ClockKind clock);

std::string textOf(const RanksReport& report, const BenchOptions& options, const Machine& machine);
std::string markdownOf(const RanksReport& report, const BenchOptions& options);
std::string jsonOf(const RanksReport& report, const BenchOptions& options, const Machine& machine);

}  // namespace sluice::tools
