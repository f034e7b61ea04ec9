#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "compiler/report/memory_report.h"
#include "tools/plan/plan.h"
#include "tools/simulate/report.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

double allSeconds(const PlannedLayout& row) {
  return std::accumulate(row.seconds.begin(), row.seconds.end(), 0.0);
}

// The largest part of the time of the workers of the slowest rank.
std::string describeBound(const std::vector<SimResult>& results) {
  SimTime products = 0, other = 0, arrival = 0, producer = 0, idle = 0;
  for (const SimResult& result : results) {
    const SimRankTimes& rank = result.ranks[slowestRank(result)];
    const SimTime busy = std::accumulate(rank.busy.begin(), rank.busy.end(), SimTime{0});
    products += rank.products;
    other += busy - rank.products;
    arrival += rank.arrival;
    producer += rank.producer;
    idle += rank.idle;
  }
  const std::array<std::pair<SimTime, const char*>, 5> parts = {{{products, "products"},
                                                                 {other, "copies and element-wise work"},
                                                                 {arrival, "rows on their way"},
                                                                 {producer, "tasks of the rank"},
                                                                 {idle, "the end of the step"}}};
  return std::ranges::max_element(parts, {}, &std::pair<SimTime, const char*>::first)->second;
}

bool isFastest(const PlannedLayout& row, const std::vector<PlannedLayout>& rows) {
  return std::ranges::all_of(rows, [&](const PlannedLayout& other) {
    return other.layout.ranks() != row.layout.ranks() || allSeconds(row) <= allSeconds(other);
  });
}

bool givesSlots(const std::vector<PlannedLayout>& rows) {
  return std::ranges::any_of(rows, [](const PlannedLayout& row) { return row.layout.slotRows > 0; });
}

std::string formatSlots(const Layout& layout) {
  return layout.slotRows > 0 ? fmt::format("{}", layout.slotRows) : "auto";
}

}  // namespace

PlannedLayout planned(const Layout& layout, const TaskProgram& program, const LayerCase& layer,
                      const std::vector<SimResult>& results) {
  PlannedLayout row;
  row.layout = layout;
  double used = 0;
  const CoreKind kind =
      program.cubeCores > 0 && results.front().kindsApart ? CoreKind::kCube : CoreKind::kUnified;
  for (const SimResult& result : results) {
    row.entries.push_back(program.at(result.entry).name);
    row.seconds.push_back(toSeconds(result.end));
    used += toSeconds(result.end) * coreUse(program, result, kind);
    for (const SimRankTimes& rank : result.ranks)
      row.exposed += toSeconds(rank.exposed) / static_cast<double>(result.ranks.size());
  }
  const double all = allSeconds(row);
  row.tokensPerSecond = static_cast<double>(layer.tokens) * layout.ranks() / all;
  row.use = used / all;
  const MemoryReport memory = reportMemory(program);
  for (const Formula& bytes : {memory.all.planned, memory.inputs, memory.outputs})
    row.memory += inBalancedStep(program, bytes);
  row.bound = describeBound(results);
  return row;
}

std::string planText(const LayerCase& layer, const std::string& target, const std::string& routing,
                     const std::vector<PlannedLayout>& rows) {
  std::string text = fmt::format(
      "{} on '{}': H {}, I {}, {} experts, top {}, {} tokens per rank, {} routing\npredicted by simulation, "
      "not "
      "measured; what the model leaves out: docs/SIMULATOR.md\n\n{:>6}{:>6}{:>4}",
      layer.name, target, layer.hidden, layer.inter, layer.experts, layer.topK, layer.tokens, routing,
      "ranks", "ep", "tp");
  const bool slots = givesSlots(rows);
  if (slots) text += fmt::format("{:>7}", "slots");
  for (const std::string& entry : rows.front().entries) text += fmt::format("{:>13}", entry + " ms");
  text += fmt::format("{:>10}{:>12}{:>8}{:>12}{:>10}  {}\n", "all ms", "Mtokens/s", "use %", "exposed ms",
                      "GiB/rank", "mostly");
  for (const PlannedLayout& row : rows) {
    text += fmt::format("{:>6}{:>6}{:>4}", row.layout.ranks(), row.layout.ep, row.layout.tp);
    if (slots) text += fmt::format("{:>7}", formatSlots(row.layout));
    for (const double seconds : row.seconds) text += fmt::format("{:>13.3f}", seconds * 1e3);
    text += fmt::format("{:>10.3f}{:>12.3f}{:>8.1f}{:>12.3f}{:>10.2f}  {}{}\n", allSeconds(row) * 1e3,
                        row.tokensPerSecond * 1e-6, 100 * row.use, row.exposed * 1e3,
                        row.memory / static_cast<double>(int64_t{1} << 30), row.bound,
                        isFastest(row, rows) ? "  <- fastest" : "");
  }
  return text;
}

std::string planJson(const LayerCase& layer, const std::string& target, const std::string& routing,
                     const std::vector<PlannedLayout>& rows) {
  Json list = Json::array();
  const bool slots = givesSlots(rows);
  for (const PlannedLayout& row : rows) {
    Json seconds;
    for (size_t e = 0; e < row.entries.size(); ++e) seconds[row.entries[e]] = row.seconds[e];
    Json fields{{"ranks", row.layout.ranks()}, {"ep", row.layout.ep}, {"tp", row.layout.tp}};
    if (slots) fields["slot_rows"] = row.layout.slotRows > 0 ? Json(row.layout.slotRows) : Json(nullptr);
    fields["seconds"] = seconds;
    fields["tokens_per_second"] = row.tokensPerSecond;
    fields["use"] = row.use;
    fields["exposed_seconds"] = row.exposed;
    fields["bytes_per_rank"] = row.memory;
    fields["mostly"] = row.bound;
    list.push_back(std::move(fields));
  }
  return Json{{"layer", layer.name},
              {"target", target},
              {"routing", routing},
              {"hidden", layer.hidden},
              {"intermediate", layer.inter},
              {"experts", layer.experts},
              {"top_k", layer.topK},
              {"tokens_per_rank", layer.tokens},
              {"layouts", list}}
             .dump(2) +
         "\n";
}

}  // namespace sluice::tools
