#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/workers/cores.h"
#include "tools/bench/report.h"
#include "tools/overlap/overlap_report.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

Json linkJson(const LinkFigures& figures) {
  Json puts = Json::array();
  for (const PutRate& rate : figures.rates)
    puts.push_back({{"bytes", rate.bytes},
                    {"put_bytes", rate.put},
                    {"copy_bytes", rate.copy},
                    {"known_copy_bytes", rate.known}});
  return {{"puts", std::move(puts)},
          {"signal_seconds", {{"looking", figures.spinning}, {"sleeping", figures.parked}}},
          {"least_signal_seconds", {{"looking", figures.leastSpinning}, {"sleeping", figures.leastParked}}}};
}

// The first sample of the same layer.
const RanksSamples& findFirstSamples(const RanksReport& report, const RanksSamples& samples) {
  return *std::find_if(report.samples.begin(), report.samples.end(),
                       [&](const RanksSamples& each) { return each.layer.name == samples.layer.name; });
}

// The number of ranks is named after what they share.
std::string_view ranksName(const LayerCase& c) { return c.isLinear() ? "TP" : "EP"; }

std::string describe(const LayerCase& c) {
  if (!c.isLinear())
    return fmt::format("H {}, I {}, {} experts, K {}, {} tokens in all, {}", c.hidden, c.inter, c.experts,
                       c.topK, c.allTokens(), c.skew);
  return fmt::format("{}, {} -> {}, {} tokens in all, {}", c.name, c.hidden, c.inter, c.allTokens(),
                     c.sameTokens ? "the same at all ranks" : "each at one rank");
}

Json layerJson(const LayerCase& c) {
  if (c.isLinear())
    return {{"layer", c.name},
            {"tp", c.ranks},
            {"tokens", c.sameTokens ? "same" : "own"},
            {"tokens_of_rank", c.tokens},
            {"in", c.hidden},
            {"out", c.inter}};
  return {{"ep", c.ranks},           {"tokens_of_rank", c.tokens}, {"hidden", c.hidden},
          {"intermediate", c.inter}, {"experts", c.experts},       {"top_k", c.topK},
          {"skew", c.skew}};
}

std::string_view clockText(ClockKind clock) {
  return clock == ClockKind::kWall ? "wall time of the slowest rank" : "processor time of all ranks / units";
}

std::string formatHead(const LayerCase& c, size_t number, std::string_view transport,
                       const BenchOptions& options, const Machine& machine) {
  return fmt::format("{}{}\n  transport {}, {} kernels, {} weights, {} repetitions in turn, {}\n",
                     number > 0 ? "\n" : "", describe(c), transport, machine.isa,
                     weightsName(options.weights), options.repeat, clockText(options.clock)) +
         fmt::format("  {:>3}{:>9}  {:<9}{}{:>11}\n", ranksName(c), "threads", "pass",
                     textLine(overlapColumns(), listHeads(overlapColumns())),
                     fmt::format("over {} {}", ranksName(c), c.ranks));
}

}  // namespace

int countCpuUnits(const RanksSamples& samples, ClockKind clock) {
  if (clock == ClockKind::kWall) return 0;
  return std::min(samples.layer.ranks * samples.threads, static_cast<int>(usableCores().units.size()));
}

double overFirst(const RanksReport& report, size_t ranks, size_t entry, ClockKind clock) {
  const auto totalSeconds = [&](const RanksSamples& samples) {
    return computeFigures(samples.entries[entry], countCpuUnits(samples, clock)).all;
  };
  const double first = totalSeconds(findFirstSamples(report, report.samples[ranks]));
  return first > 0 ? totalSeconds(report.samples[ranks]) / first : 0;
}

std::string formatText(const RanksReport& report, const BenchOptions& options, const Machine& machine) {
  std::string text;
  for (size_t n = 0; n < report.samples.size(); ++n) {
    const RanksSamples& samples = report.samples[n];
    if (&findFirstSamples(report, samples) == &samples)
      text += formatHead(samples.layer, n, report.transport, options, machine);
    for (size_t i = 0; i < samples.entries.size(); ++i)
      text += fmt::format(
          "  {:>3}{:>9}  {:<9}{}{:>11.2f}\n", samples.layer.ranks, samples.threads, samples.entries[i].entry,
          textLine(overlapColumns(), overlapCells(samples.entries[i], countCpuUnits(samples, options.clock))),
          overFirst(report, n, i, options.clock));
  }
  return report.link ? text + formatText(*report.link) : text;
}

std::string formatMarkdown(const RanksReport& report, const BenchOptions& options) {
  const LayerCase& first = report.samples.front().layer;
  std::vector<std::string> heads = listHeads(overlapColumns());
  heads.insert(heads.begin(), {"transport", std::string(ranksName(first)), "pass"});
  if (first.isLinear()) heads.insert(heads.begin(), "layer");
  heads.push_back(fmt::format("over the first {}", ranksName(first)));
  std::string text = markdownHeads(heads);
  for (size_t n = 0; n < report.samples.size(); ++n) {
    const RanksSamples& samples = report.samples[n];
    for (size_t i = 0; i < samples.entries.size(); ++i) {
      std::vector<std::string> cells =
          overlapCells(samples.entries[i], countCpuUnits(samples, options.clock));
      cells.insert(cells.begin(),
                   {report.transport, std::to_string(samples.layer.ranks), samples.entries[i].entry});
      if (first.isLinear()) cells.insert(cells.begin(), samples.layer.name);
      cells.push_back(fmt::format("{:.2f}", overFirst(report, n, i, options.clock)));
      text += markdownLine(cells);
    }
  }
  return text;
}

std::string formatJson(const RanksReport& report, const BenchOptions& options, const Machine& machine) {
  Json cases = Json::array();
  for (size_t n = 0; n < report.samples.size(); ++n) {
    const RanksSamples& samples = report.samples[n];
    Json passes = Json::array();
    for (size_t i = 0; i < samples.entries.size(); ++i) {
      Json pass = overlapJson(samples.entries[i], countCpuUnits(samples, options.clock));
      pass["over_first"] = overFirst(report, n, i, options.clock);
      passes.push_back(std::move(pass));
    }
    Json layer = layerJson(samples.layer);
    layer["threads_of_rank"] = samples.threads;
    layer["passes"] = std::move(passes);
    cases.push_back(std::move(layer));
  }
  Json root = {{"transport", report.transport},
               {"cpu", machine.cpu},
               {"isa", machine.isa},
               {"clock", options.clock == ClockKind::kWall ? "wall" : "cpu"},
               {"weights", weightsName(options.weights)},
               {"target", options.target},
               {"cases", std::move(cases)}};
  if (report.link) root["link"] = linkJson(*report.link);
  return root.dump(2) + "\n";
}

}  // namespace sluice::tools
