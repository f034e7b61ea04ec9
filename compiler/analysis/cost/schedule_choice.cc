// Choices by simulation: the step that stands for all, then sizes, lane orders and windows.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/analysis/cost/choice.h"
#include "compiler/analysis/cost/seen_sizes.h"
#include "runtime/program/space_table.h"
#include "runtime/sim/simulate.h"

namespace sluice {
namespace {

// The rows of `count` experts that represent all: the groups in their proportions, mixed, because an expert's
// number is unrelated to its load. Rounding errors carry over, so that the sum is right.
std::vector<int32_t> pickExperts(const ExpectedRows& rows, int32_t count) {
  double experts = 0;
  for (const ExpertGroup& group : rows.groups) experts += group.experts;
  std::vector<double> byRank;
  size_t at = 0;
  double before = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double place = (i + 0.5) / count * experts;
    while (at + 1 < rows.groups.size() && place > before + rows.groups[at].experts)
      before += rows.groups[at++].experts;
    byRank.push_back(rows.groups.empty() ? 0 : rows.groups[at].rows);
  }
  int32_t stride = std::max(1, static_cast<int32_t>(count * 0.618));
  while (std::gcd(stride, count) != 1) ++stride;
  std::vector<int32_t> picked;
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double next = sum + byRank[static_cast<size_t>(int64_t{i} * stride % count)];
    picked.push_back(static_cast<int32_t>(std::floor(next + 0.5) - std::floor(sum + 0.5)));
    sum = next;
  }
  return picked;
}

// How many of an expert's `total` rows come before the rows of `source`, if all sources send it equally many.
int32_t rowsBefore(int64_t total, int64_t source, int64_t sources) {
  return static_cast<int32_t>(total * source / sources);
}

// Returns the rows of the rank's experts, by peer: equal parts from all that hold different tokens.
std::vector<int32_t> countRowsByPeer(const std::vector<int32_t>& rowsOfExperts, const Mesh& mesh) {
  std::vector<int32_t> counts;
  for (int32_t peer = 0; peer < mesh.peers(); ++peer)
    for (const int32_t rows : rowsOfExperts) {
      const int32_t source = mesh.sourceOf(peer);
      counts.push_back(rowsBefore(rows, source + 1, mesh.sources()) -
                       rowsBefore(rows, source, mesh.sources()));
    }
  return counts;
}

}  // namespace

ExpectedStep expectStep(const CostProblem& problem, const ExpectedRows& rows, int32_t experts, bool ownLast) {
  const Mesh& mesh = problem.program.mesh;
  const int32_t peers = mesh.peers(), slotRows = problem.slotSize(SpaceKind::kRows),
                tokenSlot = problem.slotSize(SpaceKind::kTokens),
                groupRows = problem.slotSize(SpaceKind::kGroups);
  ExpectedStep step;
  step.part = std::min(1.0, experts / static_cast<double>(std::max<int64_t>(1, rows.experts)));
  step.rank = peers / 2;
  RoutingTables& tables = step.tables;
  tables.tokens = static_cast<int32_t>(std::ceil(problem.program.maxTokens * step.part));
  tables.tokenSlots = (tables.tokens + tokenSlot - 1) / tokenSlot;
  const RoutingShape shape{.mesh = mesh,
                           .experts = mesh.ep * experts,
                           .slotRows = slotRows,
                           .groupSlots = groupRows > slotRows ? groupRows / slotRows : 0,
                           .ownLast = ownLast};
  const std::vector<int32_t> counts = countRowsByPeer(pickExperts(rows, experts), mesh);
  buildReceived(shape, step.rank, {counts.data(), static_cast<size_t>(experts)}, tables);
  // the rank as far after this one as the source is before it
  tables.sends.clear();
  for (const Piece& piece : tables.returns)
    if (mesh.sends(piece.peer, step.rank)) tables.sends.push_back(piece);
  for (Piece& piece : tables.sends) piece.peer = (2 * step.rank - piece.peer + peers) % peers;
  orderSends(mesh, step.rank, tables.sends);
  for (const Piece& piece : tables.returns) tables.returned += piece.rows;
  return step;
}

namespace {

constexpr int64_t kMaxTasks = 1 << 13;  // tasks of an entry that is simulated

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string ruleText(LaneRule rule, bool hasGrads) {
  const bool fromEnd = rule == LaneRule::kFromEnd || rule == LaneRule::kFromEndWithGrads;
  const bool together = rule == LaneRule::kFromEndWithGrads || rule == LaneRule::kFromBeginWithGrads;
  return fmt::format("communication, the chain from its {}{}", fromEnd ? "end" : "beginning",
                     !hasGrads  ? ""
                     : together ? " with weight gradients by depth"
                                : ", weight gradients last");
}

std::string busyText(const TaskProgram& program, const SimResult& result) {
  struct Cores {
    CoreKind kind;
    const char* name;
    int32_t count;
  };
  const SimRankTimes& times = result.ranks.front();
  const double end = toSeconds(result.end);
  double all = 0;
  std::string text;
  for (const Cores& cores : {Cores{CoreKind::kUnified, "cores", program.cores},
                             {CoreKind::kCube, "cube cores", program.cubeCores},
                             {CoreKind::kVector, "vector cores", program.vectorCores}}) {
    if (cores.count == 0) continue;
    const double busy = toSeconds(times.busy[static_cast<size_t>(cores.kind)]), most = end * cores.count;
    text += fmt::format("{}{} {:.0f}% busy", text.empty() ? "" : ", ", cores.name, 100 * busy / most);
    all += most;
  }
  return text +
         fmt::format("; {:.0f}% of the time is waiting for rows, {:.0f}% for other tasks, {:.0f}% the end",
                     100 * toSeconds(times.arrival) / all, 100 * toSeconds(times.producer) / all,
                     100 * toSeconds(times.idle) / all);
}

// How many experts of the rank to simulate so that no entry runs more than kMaxTasks; 0 if one expert is
// already too many, or the problem has no events.
int32_t expertsToSimulate(const CostProblem& problem, const ExpectedRows& rows, const LayerCost& cost) {
  const TaskProgram& program = problem.program;
  if (program.events.empty()) return 0;
  const auto experts = static_cast<double>(rows.experts);
  double most = 1;
  for (uint32_t entry = 0; entry < program.entries.size(); ++entry) {
    double tasks = 0;
    for (size_t f = 0; f < program.families.size(); ++f)
      if (program.families[f].entry.value == entry) tasks += cost.families[f].tasks;
    most = std::max(most, tasks);
  }
  return static_cast<int32_t>(std::min(experts, std::floor(experts * static_cast<double>(kMaxTasks) / most)));
}

// With the rest of the step as if it kept the busiest kind of core, or the link, busy all the time.
double wholeSeconds(const TaskProgram& program, const Rates& rates, const SimResult& result, double part) {
  const SimRankTimes& times = result.ranks.front();
  double rest = static_cast<double>(times.sent) / rates.link.bandwidth;
  for (const auto& [kind, cores] : {std::pair{CoreKind::kUnified, program.cores},
                                    {CoreKind::kCube, program.cubeCores},
                                    {CoreKind::kVector, program.vectorCores}})
    if (cores > 0) rest = std::max(rest, toSeconds(times.busy[static_cast<size_t>(kind)]) / cores);
  return toSeconds(result.end) + (1 / part - 1) * rest;
}

// The runner-up; it may even be better, but only within the noise.
std::string nextText(const std::string& what, double seconds, double chosen) {
  return fmt::format("next {}, {}{}", what, timeText(seconds),
                     isNoise(seconds, chosen) ? ", no real difference" : "");
}

class Scheduler {
 public:
  Scheduler(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
            std::span<const CutSizes> candidates, const Windows& most, const CompleteProgram& complete)
      : problem_(std::move(problem)),
        rates_(rates),
        rows_(rows),
        candidates_(candidates),
        most_(most),
        complete_(complete) {}

  ScheduleChoice run() {
    choice_.laneRules.assign(entries().size(), LaneRule::kFromEnd);
    experts_ = expertsFor(0);
    if (experts_ >= 1) {
      chooseSizes();
      chooseRules();
    }
    if (choice_.entries.size() == entries().size()) return std::move(choice_);
    return {0,
            std::vector<LaneRule>(entries().size(), LaneRule::kFromEnd),
            {},
            {{"", "lanes of all entries: " + ruleText(LaneRule::kFromEnd, true),
              "as docs/SCHEDULE.md has it; the step is too large to be simulated"}}};
  }

 private:
  const std::vector<Entry>& entries() const { return problem_.program.entries; }

  // Cuts the problem by the candidate's sizes.
  int32_t expertsFor(size_t candidate) {
    cutBy(candidates_[candidate], problem_.program);
    return expertsToSimulate(problem_, rows_, computeCost(problem_, rates_, rows_));
  }

  // The problem must be cut by the candidate's sizes.
  std::optional<Plan> planOf(size_t candidate, std::span<const LaneRule> rules) const {
    const Windows windows = chooseWindows(most_, problem_, computeCost(problem_, rates_, rows_));
    Expected<VerifiedProgram> program = complete_(candidates_[candidate], windows, rules);
    if (!program) return std::nullopt;
    return Plan::make(std::move(*program));
  }

  std::optional<SimulatedEntry> simulate(const Plan& plan, uint32_t entry) const {
    const EntryId id{entry};
    const ExpectedStep step = expectStep(problem_, rows_, experts_, takesOwnLast(problem_.program, id));
    Expected<SimResult> result = simulateOneForAll(plan, id, step.rank, step.tables, rates_);
    if (!result) return std::nullopt;
    const double seconds = wholeSeconds(plan.program(), rates_, *result, step.part);
    return SimulatedEntry{seconds, step.part, std::move(*result)};
  }

  // Seconds of all entries. Infinity if that many experts are too many to simulate: fewer would represent all
  // of them less well, and different parts of a step cannot be compared.
  double simulateAll(size_t candidate) {
    if (expertsFor(candidate) < experts_) return kNever;
    const std::optional<Plan> plan = planOf(candidate, {});
    double seconds = plan ? 0 : kNever;
    for (uint32_t entry = 0; entry < entries().size() && seconds < kNever; ++entry) {
      const std::optional<SimulatedEntry> simulated = simulate(*plan, entry);
      seconds += simulated ? simulated->seconds : kNever;
    }
    return seconds;
  }

  void chooseSizes() {
    if (candidates_.size() < 2) return;
    std::vector<double> seconds;
    for (size_t i = 0; i < candidates_.size(); ++i) seconds.push_back(simulateAll(i));
    const auto finite = std::count_if(seconds.begin(), seconds.end(), [](double s) { return s < kNever; });
    if (finite < 2) return;
    const double best = *std::min_element(seconds.begin(), seconds.end());
    while (!isNoise(seconds[choice_.sizes], best)) ++choice_.sizes;
    size_t other = choice_.sizes == 0 ? 1 : 0;
    for (size_t i = other + 1; i < seconds.size(); ++i)
      if (i != choice_.sizes && seconds[i] < seconds[other]) other = i;
    const std::string why =
        choice_.sizes == 0 ? "the model's choice stays" : "clearly better than the model's choice";
    choice_.decisions.push_back(
        {"", sizesText(candidates_[choice_.sizes]),
         fmt::format("{}: of {} simulated, {}; {}", why, finite, timeText(seconds[choice_.sizes]),
                     nextText(sizesText(candidates_[other]), seconds[other], seconds[choice_.sizes]))});
  }

  void chooseRules() {
    cutBy(candidates_[choice_.sizes], problem_.program);
    for (uint32_t entry = 0; entry < entries().size(); ++entry)
      if (!chooseRule(entry)) return;
  }

  // By EntryId, of one entry this one.
  std::vector<LaneRule> rulesWith(uint32_t entry, LaneRule rule) const {
    std::vector<LaneRule> rules(entries().size(), LaneRule::kFromEnd);
    rules[entry] = rule;
    return rules;
  }

  // Rules that give the same order count as one.
  std::vector<LaneRule> listRules(uint32_t entry) const {
    std::set<std::vector<int32_t>> orders;
    std::vector<LaneRule> rules;
    for (LaneRule rule : kLaneRules)
      if (orders.insert(rankFamilies(problem_.program, rulesWith(entry, rule))).second) rules.push_back(rule);
    return rules;
  }

  bool chooseRule(uint32_t entry) {
    const std::vector<LaneRule> rules = listRules(entry);
    std::vector<SimulatedEntry> simulated;
    for (LaneRule rule : rules) {
      const std::optional<Plan> plan = planOf(choice_.sizes, rulesWith(entry, rule));
      std::optional<SimulatedEntry> one = plan ? simulate(*plan, entry) : std::nullopt;
      if (!one) return false;
      simulated.push_back(std::move(*one));
    }
    size_t best = 0;
    for (size_t i = 1; i < rules.size(); ++i)
      if (simulated[i].seconds < simulated[best].seconds) best = i;
    if (isNoise(simulated[0].seconds, simulated[best].seconds)) best = 0;
    size_t other = best == 0 ? 1 : 0;
    for (size_t i = other + 1; i < rules.size(); ++i)
      if (i != best && simulated[i].seconds < simulated[other].seconds) other = i;
    const auto isGrad = [&](const Family& family) {
      return family.entry.value == entry && findInfo(problem_.familySpace(family)).sums;
    };
    const std::vector<Family>& families = problem_.program.families;
    const bool hasGrads = std::any_of(families.begin(), families.end(), isGrad);
    const std::string next =
        other < rules.size()
            ? nextText(ruleText(rules[other], hasGrads), simulated[other].seconds, simulated[best].seconds)
            : std::string("nothing else to choose");
    choice_.laneRules[entry] = rules[best];
    choice_.decisions.push_back(
        {"", fmt::format("lanes of entry '{}': {}", entries()[entry].name, ruleText(rules[best], hasGrads)),
         fmt::format("simulated {}; {}", timeText(simulated[best].seconds), next)});
    choice_.decisions.push_back({"",
                                 fmt::format("entry '{}' simulated with {:.0f}% of the step",
                                             entries()[entry].name, 100 * simulated[best].part),
                                 busyText(problem_.program, simulated[best].result)});
    choice_.entries.push_back(std::move(simulated[best]));
    return true;
  }

  CostProblem problem_;
  const Rates& rates_;
  const ExpectedRows& rows_;
  const std::span<const CutSizes> candidates_;
  const Windows& most_;
  const CompleteProgram& complete_;
  int32_t experts_ = 0;
  ScheduleChoice choice_;
};

int32_t chooseWindow(int32_t window, const CostProblem& problem, const LayerCost& cost, SpaceKind kind) {
  int64_t maxTiles = 1, fill = 1;
  double slots = 0;
  for (size_t f = 0; f < problem.program.families.size(); ++f) {
    const Family& family = problem.program.families[f];
    if (problem.familySpace(family) != kind) continue;
    const int64_t tiles = countTiles(family), cores = coreCount(problem, family);
    maxTiles = std::max(maxTiles, tiles);
    fill = std::max(fill, (cores + tiles - 1) / tiles);
    slots = std::max(slots, cost.families[f].tasks / static_cast<double>(tiles));
  }
  const auto expected = std::bit_ceil(static_cast<uint64_t>(std::clamp(std::ceil(slots), 1.0, 65536.0)));
  const int64_t wanted = std::min(std::max<int64_t>(window, fill), static_cast<int64_t>(expected));
  return static_cast<int32_t>(std::clamp<int64_t>(kMaxTableTasks / maxTiles, 1, wanted));
}

}  // namespace

ScheduleChoice chooseSchedule(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
                              std::span<const CutSizes> candidates, const Windows& most,
                              const CompleteProgram& complete) {
  return Scheduler(std::move(problem), rates, rows, candidates, most, complete).run();
}

Windows chooseWindows(const Windows& most, const CostProblem& problem, const LayerCost& cost) {
  const auto choose = [&](int32_t window, SpaceKind kind) {
    return chooseWindow(window, problem, cost, kind);
  };
  Windows windows;
  windows.tokens = choose(most.tokens, SpaceKind::kTokens);
  windows.rows = choose(most.rows, SpaceKind::kRows);
  const int32_t slotRows = problem.slotSize(SpaceKind::kRows),
                groupRows = problem.slotSize(SpaceKind::kGroups);
  if (groupRows > slotRows) {
    // cut-tasks gives the windows of groups and of slots the same number of rows
    const auto isInRows = [&](const Family& family) {
      return problem.familySpace(family) == SpaceKind::kRows;
    };
    const std::vector<Family>& families = problem.program.families;
    const int32_t slots = groupRows / slotRows;
    const int32_t ofGroups = slots * choose(std::max(1, most.rows / slots), SpaceKind::kGroups);
    const bool both = std::any_of(families.begin(), families.end(), isInRows);
    windows.rows = both ? std::min(windows.rows, ofGroups) : ofGroups;
  }
  windows.sends = choose(most.sends, SpaceKind::kSends);
  windows.returns = choose(most.returns, SpaceKind::kReturns);
  windows.experts = choose(most.experts, SpaceKind::kExperts);
  return windows;
}

}  // namespace sluice
