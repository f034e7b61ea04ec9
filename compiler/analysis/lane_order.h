// Lane order: the order in which a core tries its lanes. No order can hang (docs/SCHEDULE.md, R3); which is
// best depends on the times of tasks, so that the cost model chooses among rules.
//
// Plain values in, plain values out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// Communication always goes first: what is sent late is waited for at another rank. The chain goes from its
// end to its beginning (what is nearly done frees memory and feeds the network), or from its beginning; the
// weight gradients last, those whose inputs come first before the others, or in the chain by their depth.
enum class LaneRule : uint8_t {
  kFromEnd = 0,
  kFromBegin = 1,
  kFromEndWithGrads = 2,
  kFromBeginWithGrads = 3,
};

inline constexpr std::array<LaneRule, 4> kLaneRules = {
    LaneRule::kFromEnd, LaneRule::kFromBegin, LaneRule::kFromEndWithGrads, LaneRule::kFromBeginWithGrads};

// "end", "begin", "end-grads", "begin-grads": the words of order-queues.
std::string_view laneRuleName(LaneRule rule);
std::optional<LaneRule> laneRuleFromName(std::string_view name);

// The events of a family.
struct Sync {
  std::vector<EventId> waits;
  std::vector<EventId> signals;
  friend bool operator==(const Sync&, const Sync&) = default;
};

// The properties of a family that ranking uses.
struct LaneNode {
  uint32_t entry = 0;
  SpaceKind space = SpaceKind::kRows;
  Sync sync;
};

// The lane priority of each family, from 0 in each entry. `families` has producers before consumers, of
// events numbered below `events`. `rules` are by entry; those that are not given are kFromEnd.
std::vector<int32_t> rankFamilies(std::span<const LaneNode> families, size_t events,
                                  std::span<const LaneRule> rules = {});
std::vector<int32_t> rankFamilies(const TaskProgram& program, std::span<const LaneRule> rules = {});

}  // namespace sluice
