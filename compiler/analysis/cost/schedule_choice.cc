#include "compiler/analysis/cost/schedule_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "compiler/analysis/cost/seen_sizes.h"
#include "compiler/analysis/cost/time_text.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr int64_t kMostTasks = 1 << 13;  // tasks of an entry that is replayed

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string ruleText(LaneRule rule, bool hasGrads) {
  const bool fromEnd = rule == LaneRule::kFromEnd || rule == LaneRule::kFromEndWithGrads;
  const bool together = rule == LaneRule::kFromEndWithGrads || rule == LaneRule::kFromBeginWithGrads;
  return fmt::format("communication, the chain from its {}{}", fromEnd ? "end" : "beginning",
                     !hasGrads  ? ""
                     : together ? " with weight gradients by depth"
                                : ", weight gradients last");
}

std::string busyText(const Replay& replay) {
  std::string text;
  double all = 0;
  for (const ReplayedPool& pool : replay.pools) {
    const char* name = pool.pool.kind == CoreKind::kUnified ? "cores"
                       : pool.pool.kind == CoreKind::kCube  ? "cube cores"
                       : pool.pool.communication            ? "communication cores"
                                                            : "vector cores";
    const double most = replay.replayed * pool.pool.cores;
    text += fmt::format("{}{} {:.0f}% busy", text.empty() ? "" : ", ", name, 100 * pool.busy / most);
    all += most;
  }
  const ReplayedWaits& waits = replay.waits;
  return text +
         fmt::format("; {:.0f}% of the time is waiting for rows, {:.0f}% for other tasks, {:.0f}% the end",
                     100 * waits.arrival / all, 100 * waits.producer / all, 100 * waits.end / all);
}

// The runner-up; it may even be better, but only within the noise.
std::string nextText(const std::string& what, double seconds, double chosen) {
  return fmt::format("next {}, {}{}", what, timeText(seconds),
                     isNoise(seconds, chosen) ? ", no real difference" : "");
}

class Scheduler {
 public:
  Scheduler(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
            std::span<const CutSizes> candidates)
      : problem_(std::move(problem)), rates_(rates), rows_(rows), candidates_(candidates) {}

  ScheduleChoice run() {
    choice_.laneRules.assign(entries().size(), LaneRule::kFromEnd);
    experts_ = expertsFor(0);
    if (experts_ >= 1) chooseSizes();
    cutBy(candidates_[choice_.sizes], problem_.program);
    if (experts_ >= 1) chooseRules();
    if (choice_.replays.size() == entries().size()) return std::move(choice_);
    return {0,
            std::vector<LaneRule>(entries().size(), LaneRule::kFromEnd),
            {},
            {{"", "lanes of all entries: " + ruleText(LaneRule::kFromEnd, true),
              "as docs/SCHEDULE.md has it; the step is too large to be replayed"}}};
  }

 private:
  const std::vector<Entry>& entries() const { return problem_.program.entries; }

  int32_t expertsFor(size_t candidate) {
    cutBy(candidates_[candidate], problem_.program);
    return expertsToReplay(problem_, rows_, costOf(problem_, rates_, rows_), kMostTasks);
  }

  // Seconds of all entries. Infinity if that many experts are too many to replay: fewer would represent all
  // of them less well, and replays of different parts of a step cannot be compared.
  double replayAll(size_t candidate) {
    if (expertsFor(candidate) < experts_) return kNever;
    double seconds = 0;
    const bool isWhole = forEntries([&](uint32_t entry, const ReplayStep& step) {
      const std::optional<Replay> replay = replayEntry(problem_, entry, LaneRule::kFromEnd, rates_, step);
      if (replay) seconds += replay->seconds;
      return replay.has_value();
    });
    return isWhole ? seconds : kNever;
  }

  // Calls use(entry, step) for each entry, as long as calls return true; returns whether all did.
  template <class Use>
  bool forEntries(const Use& use) const {
    std::array<std::optional<ReplayStep>, 2> steps;  // by whether own rows are last
    for (uint32_t entry = 0; entry < entries().size(); ++entry) {
      const bool ownLast = takesOwnLast(problem_.program, EntryId{entry});
      std::optional<ReplayStep>& step = steps[ownLast];
      if (!step) step = replayStepOf(problem_, rows_, experts_, ownLast);
      if (!use(entry, *step)) return false;
    }
    return true;
  }

  void chooseSizes() {
    if (candidates_.size() < 2) return;
    std::vector<double> seconds;
    for (size_t i = 0; i < candidates_.size(); ++i) seconds.push_back(replayAll(i));
    const auto replayed = std::count_if(seconds.begin(), seconds.end(), [](double s) { return s < kNever; });
    if (replayed < 2) return;
    const double best = *std::min_element(seconds.begin(), seconds.end());
    while (!isNoise(seconds[choice_.sizes], best)) ++choice_.sizes;
    size_t other = choice_.sizes == 0 ? 1 : 0;
    for (size_t i = other + 1; i < seconds.size(); ++i)
      if (i != choice_.sizes && seconds[i] < seconds[other]) other = i;
    const std::string why =
        choice_.sizes == 0 ? "the model's choice stays" : "clearly better than the model's choice";
    choice_.decisions.push_back(
        {"", sizesText(candidates_[choice_.sizes]),
         fmt::format("{}: of {} replayed, {}; {}", why, replayed, timeText(seconds[choice_.sizes]),
                     nextText(sizesText(candidates_[other]), seconds[other], seconds[choice_.sizes]))});
  }

  void chooseRules() {
    forEntries([&](uint32_t entry, const ReplayStep& step) { return chooseRule(entry, step); });
  }

  // Rules that give the same order count as one.
  std::vector<LaneRule> rulesOf(uint32_t entry) const {
    std::vector<LaneRule> byEntry(entries().size(), LaneRule::kFromEnd);
    std::set<std::vector<int32_t>> orders;
    std::vector<LaneRule> rules;
    for (LaneRule rule : kLaneRules) {
      byEntry[entry] = rule;
      if (orders.insert(rankFamilies(problem_.program, byEntry)).second) rules.push_back(rule);
    }
    return rules;
  }

  bool chooseRule(uint32_t entry, const ReplayStep& step) {
    const std::vector<LaneRule> rules = rulesOf(entry);
    std::vector<Replay> replays;
    for (LaneRule rule : rules) {
      std::optional<Replay> replay = replayEntry(problem_, entry, rule, rates_, step);
      if (!replay) return false;
      replays.push_back(std::move(*replay));
    }
    size_t best = 0;
    for (size_t i = 1; i < rules.size(); ++i)
      if (replays[i].seconds < replays[best].seconds) best = i;
    if (isNoise(replays[0].seconds, replays[best].seconds)) best = 0;
    size_t other = best == 0 ? 1 : 0;
    for (size_t i = other + 1; i < rules.size(); ++i)
      if (i != best && replays[i].seconds < replays[other].seconds) other = i;
    const auto isGrad = [&](const Family& family) {
      return family.entry.value == entry && infoOf(problem_.spaceOf(family)).sums;
    };
    const std::vector<Family>& families = problem_.program.families;
    const bool hasGrads = std::any_of(families.begin(), families.end(), isGrad);
    const std::string next = other < rules.size() ? nextText(ruleText(rules[other], hasGrads),
                                                             replays[other].seconds, replays[best].seconds)
                                                  : std::string("nothing else to choose");
    choice_.laneRules[entry] = rules[best];
    choice_.decisions.push_back(
        {"", fmt::format("lanes of entry '{}': {}", entries()[entry].name, ruleText(rules[best], hasGrads)),
         fmt::format("replayed {}; {}", timeText(replays[best].seconds), next)});
    choice_.decisions.push_back({"",
                                 fmt::format("entry '{}' replayed with {:.0f}% of the step",
                                             entries()[entry].name, 100 * replays[best].part),
                                 busyText(replays[best])});
    choice_.replays.push_back(std::move(replays[best]));
    return true;
  }

  CostProblem problem_;
  const Rates& rates_;
  const ExpectedRows& rows_;
  const std::span<const CutSizes> candidates_;
  int32_t experts_ = 0;
  ScheduleChoice choice_;
};

int32_t windowOf(int32_t window, const CostProblem& problem, const LayerCost& cost, SpaceKind kind) {
  int64_t mostTiles = 1, fill = 1;
  double slots = 0;
  for (size_t f = 0; f < problem.program.families.size(); ++f) {
    const Family& family = problem.program.families[f];
    if (problem.spaceOf(family) != kind) continue;
    const int64_t tiles = tilesOf(family), cores = coresOf(problem, family);
    mostTiles = std::max(mostTiles, tiles);
    fill = std::max(fill, (cores + tiles - 1) / tiles);
    slots = std::max(slots, cost.families[f].tasks / static_cast<double>(tiles));
  }
  const auto expected = std::bit_ceil(static_cast<uint64_t>(std::clamp(std::ceil(slots), 1.0, 65536.0)));
  const int64_t wanted = std::min(std::max<int64_t>(window, fill), static_cast<int64_t>(expected));
  return static_cast<int32_t>(std::clamp<int64_t>(kMaxTableTasks / mostTiles, 1, wanted));
}

}  // namespace

ScheduleChoice chooseSchedule(CostProblem problem, const Rates& rates, const ExpectedRows& rows,
                              std::span<const CutSizes> candidates) {
  return Scheduler(std::move(problem), rates, rows, candidates).run();
}

Windows chooseWindows(const Windows& most, const CostProblem& problem, const LayerCost& cost) {
  const auto choose = [&](int32_t window, SpaceKind kind) { return windowOf(window, problem, cost, kind); };
  Windows windows;
  windows.tokens = choose(most.tokens, SpaceKind::kTokens);
  windows.rows = choose(most.rows, SpaceKind::kRows);
  const int32_t slotRows = problem.slotSize(SpaceKind::kRows),
                groupRows = problem.slotSize(SpaceKind::kGroups);
  if (groupRows > slotRows) {
    // cut-tasks gives the windows of groups and of slots the same number of rows
    const auto isInRows = [&](const Family& family) { return problem.spaceOf(family) == SpaceKind::kRows; };
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
