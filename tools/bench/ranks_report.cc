#include "tools/bench/ranks_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/workers/cores.h"
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

std::string_view clockText(ClockKind clock) {
  return clock == ClockKind::kWall ? "wall time of the slowest rank" : "processor time of all ranks / units";
}

}  // namespace

int cpuUnitsOf(const RanksSamples& samples, ClockKind clock) {
  if (clock == ClockKind::kWall) return 0;
  return std::min(samples.layer.ranks * samples.threads, static_cast<int>(usableCores().units.size()));
}

double overFirst(const RanksReport& report, size_t ranks, size_t entry, ClockKind clock) {
  const auto secondsOf = [&](const RanksSamples& samples) {
    return figuresOf(samples.entries[entry], cpuUnitsOf(samples, clock)).all;
  };
  const double first = secondsOf(report.samples.front());
  return first > 0 ? secondsOf(report.samples[ranks]) / first : 0;
}

std::string textOf(const RanksReport& report, const BenchOptions& options, const Machine& machine) {
  if (report.samples.empty()) return {};
  const LayerCase& c = report.samples.front().layer;
  std::string text = fmt::format("H {}, I {}, {} experts, K {}, {} tokens in all, {}\n", c.hidden, c.inter,
                                 c.experts, c.topK, c.tokens * c.ranks, c.skew);
  text +=
      fmt::format("  transport {}, {} kernels, {} weights, {} repetitions in turn, {}\n", report.transport,
                  machine.isa, weightsName(options.weights), options.repeat, clockText(options.clock));
  text += fmt::format("  {:>3}{:>9}  {:<9}{}{:>11}\n", "EP", "threads", "pass", overlapHeads(),
                      fmt::format("over EP {}", c.ranks));
  for (size_t n = 0; n < report.samples.size(); ++n) {
    const RanksSamples& samples = report.samples[n];
    for (size_t i = 0; i < samples.entries.size(); ++i)
      text += fmt::format("  {:>3}{:>9}  {:<9}{}{:>11.2f}\n", samples.layer.ranks, samples.threads,
                          samples.entries[i].entry,
                          overlapLine(samples.entries[i], cpuUnitsOf(samples, options.clock)),
                          overFirst(report, n, i, options.clock));
  }
  return report.link ? text + textOf(*report.link) : text;
}

std::string markdownOf(const RanksReport& report, const BenchOptions& options) {
  std::string text =
      "| transport | EP | pass | T ms | Tcomm ms | Tcompute ms | overlap | MB sent | orders | puts | "
      "signals | messages | flushes | over the first EP |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (size_t n = 0; n < report.samples.size(); ++n) {
    const RanksSamples& samples = report.samples[n];
    for (size_t i = 0; i < samples.entries.size(); ++i) {
      const EntryOverlap& entry = samples.entries[i];
      const OverlapFigures f = figuresOf(entry, cpuUnitsOf(samples, options.clock));
      const Traffic traffic = entry.samples.empty() ? Traffic{} : entry.samples.back().traffic;
      text += fmt::format(
          "| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} | {} | {} | {} | {} | {:.2f} |\n",
          report.transport, samples.layer.ranks, entry.entry, f.all * 1e3, f.communication * 1e3,
          f.compute * 1e3, f.efficiency, static_cast<double>(traffic.bytes) * 1e-6,
          traffic.pieces + traffic.signals, f.puts, f.signals, f.messages, f.flushes,
          overFirst(report, n, i, options.clock));
    }
  }
  return text;
}

std::string jsonOf(const RanksReport& report, const BenchOptions& options, const Machine& machine) {
  Json cases = Json::array();
  for (size_t n = 0; n < report.samples.size(); ++n) {
    const RanksSamples& samples = report.samples[n];
    Json passes = Json::array();
    for (size_t i = 0; i < samples.entries.size(); ++i) {
      Json pass = overlapJson(samples.entries[i], cpuUnitsOf(samples, options.clock));
      pass["over_first"] = overFirst(report, n, i, options.clock);
      passes.push_back(std::move(pass));
    }
    cases.push_back({{"ep", samples.layer.ranks},
                     {"threads_of_rank", samples.threads},
                     {"tokens_of_rank", samples.layer.tokens},
                     {"hidden", samples.layer.hidden},
                     {"intermediate", samples.layer.inter},
                     {"experts", samples.layer.experts},
                     {"top_k", samples.layer.topK},
                     {"skew", samples.layer.skew},
                     {"passes", std::move(passes)}});
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
