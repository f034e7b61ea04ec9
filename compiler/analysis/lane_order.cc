#include "compiler/analysis/lane_order.h"

#include <algorithm>
#include <tuple>

#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"end", "begin", "end-grads", "begin-grads"};

// The longest path of events that leads to each family; producers stand before consumers.
std::vector<int32_t> depths(std::span<const LaneNode> families, size_t events) {
  std::vector<int32_t> eventDepth(events, 0);
  std::vector<int32_t> depth;
  for (const LaneNode& family : families) {
    int32_t deepest = 0;
    for (EventId wait : family.sync.waits) deepest = std::max(deepest, eventDepth[wait.value]);
    depth.push_back(deepest);
    for (EventId signal : family.sync.signals)
      eventDepth[signal.value] = std::max(eventDepth[signal.value], deepest + 1);
  }
  return depth;
}

enum class Group : uint8_t { kCommunication, kChain, kGrads };

Group groupOf(SpaceKind kind) {
  if (isRemote(kind)) return Group::kCommunication;
  return infoOf(kind).sums ? Group::kGrads : Group::kChain;
}

// Where a family goes among those of its entry: group, place in the group, gradients behind the chain.
std::tuple<Group, int32_t, bool> placeOf(SpaceKind kind, int32_t depth, LaneRule rule) {
  const bool fromEnd = rule == LaneRule::kFromEnd || rule == LaneRule::kFromEndWithGrads;
  const bool together = rule == LaneRule::kFromEndWithGrads || rule == LaneRule::kFromBeginWithGrads;
  const Group group = groupOf(kind);
  if (group == Group::kCommunication) return {group, depth, false};
  if (group == Group::kGrads && !together) return {group, depth, true};
  return {Group::kChain, fromEnd ? -depth : depth, group == Group::kGrads};
}

}  // namespace

std::string_view laneRuleName(LaneRule rule) { return kNames[static_cast<size_t>(rule)]; }

std::optional<LaneRule> laneRuleFromName(std::string_view name) {
  for (LaneRule rule : kLaneRules)
    if (laneRuleName(rule) == name) return rule;
  return std::nullopt;
}

std::vector<int32_t> rankFamilies(std::span<const LaneNode> families, size_t events,
                                  std::span<const LaneRule> rules) {
  const std::vector<int32_t> depth = depths(families, events);
  uint32_t entries = 0;
  for (const LaneNode& family : families) entries = std::max(entries, family.entry + 1);
  std::vector<int32_t> priority(families.size(), 0);
  for (uint32_t entry = 0; entry < entries; ++entry) {
    const LaneRule rule = entry < rules.size() ? rules[entry] : LaneRule::kFromEnd;
    std::vector<std::pair<std::tuple<Group, int32_t, bool>, size_t>> order;
    for (size_t f = 0; f < families.size(); ++f)
      if (families[f].entry == entry) order.emplace_back(placeOf(families[f].space, depth[f], rule), f);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) priority[order[i].second] = static_cast<int32_t>(i);
  }
  return priority;
}

std::vector<int32_t> rankFamilies(const TaskProgram& program, std::span<const LaneRule> rules) {
  std::vector<LaneNode> nodes;
  for (const Family& family : program.families)
    nodes.push_back({family.entry.value, program.at(family.space).kind, {family.waits, family.signals}});
  return rankFamilies(nodes, program.events.size(), rules);
}

}  // namespace sluice
