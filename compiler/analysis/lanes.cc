#include "compiler/analysis/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "runtime/program/deal.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr int64_t kMaxTasks = 1 << 20;  // of a lane's window

// The length of the longest path of events to each family; producers come before consumers.
std::vector<int32_t> depths(const TaskProgram& program) {
  std::vector<int32_t> eventDepth(program.events.size(), 0);
  std::vector<int32_t> depth;
  for (const Family& family : program.families) {
    int32_t deepest = 0;
    for (EventId wait : family.waits) deepest = std::max(deepest, eventDepth[wait.value]);
    depth.push_back(deepest);
    for (EventId signal : family.signals)
      eventDepth[signal.value] = std::max(eventDepth[signal.value], deepest + 1);
  }
  return depth;
}

enum class Group : uint8_t { kCommunication, kChain, kGrads };

Group groupOf(SpaceKind kind) {
  if (isRemote(kind)) return Group::kCommunication;
  return findInfo(kind).sums ? Group::kGrads : Group::kChain;
}

// The sort key of a family within its entry: group, place in the group, gradients after the chain.
std::tuple<Group, int32_t, bool> lanePlace(SpaceKind kind, int32_t depth, LaneRule rule) {
  const bool fromEnd = rule == LaneRule::kFromEnd || rule == LaneRule::kFromEndWithGrads;
  const bool together = rule == LaneRule::kFromEndWithGrads || rule == LaneRule::kFromBeginWithGrads;
  const Group group = groupOf(kind);
  if (group == Group::kCommunication) return {group, depth, false};
  if (group == Group::kGrads && !together) return {group, depth, true};
  return {Group::kChain, fromEnd ? -depth : depth, group == Group::kGrads};
}

}  // namespace

CoreRange coresFor(const TaskProgram& program, const Family& family,
                   const CommunicationCores& communication) {
  const SpaceKind space = program.at(family.space).kind;
  const int32_t cores = program.coreCount(family.core), reserved = communication.reserved;
  CoreRange range{0, cores};
  if (family.core == CoreKind::kVector && reserved > 0 && reserved < cores)
    range = isRemote(space) ? CoreRange{0, reserved} : CoreRange{reserved, cores - reserved};
  const int32_t most = space == SpaceKind::kSends     ? communication.sends
                       : space == SpaceKind::kReturns ? communication.returns
                                                      : 0;
  if (most > 0) range.count = std::min(range.count, most);
  return range;
}

Expected<TaskProgram> assignCores(TaskProgram program, const CommunicationCores& communication) {
  if (!program.lanes.empty()) return Error{reportLine("", "error", "the program has lanes already")};
  for (uint32_t f = 0; f < program.families.size(); ++f) {
    const Family& family = program.families[f];
    const int32_t window = program.at(family.space).window;
    const int64_t tasks = int64_t{family.tiles} * window;
    if (tasks > kMaxTasks)
      return errorAt(family, fmt::format("family '{}' has {} tasks in a window, expected at most {}: choose "
                                         "larger tiles or a smaller window",
                                         family.name, tasks, kMaxTasks));
    const CoreRange cores = coresFor(program, family, communication);
    Deal deal = dealTasks(FamilyId{f}, window, family.tiles, cores.count);
    program.lanes.push_back({family.name, family.entry, family.space, family.core, 0, deal.rotation,
                             std::move(deal.seats), cores.first});
  }
  return program;
}

std::vector<int32_t> rankFamilies(const TaskProgram& program, std::span<const LaneRule> rules) {
  const std::vector<int32_t> depth = depths(program);
  std::vector<int32_t> priority(program.families.size(), 0);
  for (uint32_t entry = 0; entry < program.entries.size(); ++entry) {
    const LaneRule rule = entry < rules.size() ? rules[entry] : LaneRule::kFromEnd;
    std::vector<std::pair<std::tuple<Group, int32_t, bool>, size_t>> order;
    for (size_t f = 0; f < priority.size(); ++f) {
      const Family& family = program.families[f];
      if (family.entry.value == entry)
        order.emplace_back(lanePlace(program.at(family.space).kind, depth[f], rule), f);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) priority[order[i].second] = static_cast<int32_t>(i);
  }
  return priority;
}

TaskProgram orderQueues(TaskProgram program, std::span<const LaneRule> rules) {
  const std::vector<int32_t> priority = rankFamilies(program, rules);
  for (Lane& lane : program.lanes)
    for (const std::vector<TaskRecord>& seat : lane.seats)
      if (!seat.empty()) {
        lane.priority = priority[seat.front().family.value];
        break;
      }
  return program;
}

}  // namespace sluice
