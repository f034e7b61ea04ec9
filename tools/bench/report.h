// Prints measurements as text, as rows of a Markdown table, as JSON, and as a picture: of cases, and of
// layers whose ranks are threads or processes. Free functions of values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/link_probe.h"
#include "tools/bench/measure_case.h"
#include "tools/bench/measure_ranks.h"

namespace sluice::tools {

struct Machine {
  std::string cpu;
  std::string isa;
  std::string peers;  // their versions; empty: none
};

// Figures derived from the samples of one pass; 0 if a figure does not apply.
struct PeerFigures {
  double median = 0;      // seconds
  double overSluice = 0;  // the peer's time relative to Sluice's
};
struct PassFigures {
  double median = 0, least = 0, most = 0;  // seconds
  double flops = 0;                        // per second, of the median
  double shareOfPeak = 0;
  double readRate = 0;     // bytes per second that must be read, of the median
  double shareOfRead = 0;  // of the read bandwidth
  double bound = 0;        // seconds: max(flops / peak, reads / read rate + writes / stream rate)
  double overBound = 0;
  std::vector<PeerFigures> peers;
  double gain = 0;  // speed of all threads relative to one
  double gainOfProbe = 0;
  double overBare = 0;  // time of a whole layer relative to its products
};
PassFigures computeFigures(const CaseSamples& samples, const PassSamples& pass, ClockKind clock);

std::string formatText(const CaseSamples& samples, const BenchOptions& options, const Machine& machine);
std::string markdownHeader(const BenchOptions& options);
std::string formatMarkdown(const CaseSamples& samples, const BenchOptions& options);

// The time of (d) relative to (a) if both were measured, else empty.
std::string skewText(const std::vector<CaseSamples>& all, ClockKind clock);

// All results as JSON, with every repetition.
std::string formatJson(const std::vector<CaseSamples>& all, const BenchOptions& options,
                       const Machine& machine);

// The measurements of layers whose ranks are threads or processes.
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

// An SVG file: for each case, bars of the share of the register peak that each pass reaches, and beside them
// the peer's bars if it was measured. The scale ends at 100%, or later if a share is larger.
std::string drawPlot(const std::vector<CaseSamples>& all, const BenchOptions& options,
                     const Machine& machine);

}  // namespace sluice::tools
