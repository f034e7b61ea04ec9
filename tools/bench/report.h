// Prints measurements as text, as rows of a Markdown table, and as JSON. Free functions of values.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/measure_case.h"

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

}  // namespace sluice::tools
