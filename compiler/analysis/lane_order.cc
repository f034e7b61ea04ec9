#include "compiler/analysis/lane_order.h"

#include <algorithm>
#include <tuple>

#include "runtime/program/space_table.h"

namespace sluice {
namespace {

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
