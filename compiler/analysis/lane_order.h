// order-queues: the order in which a core tries its lanes. No order can hang (docs/SCHEDULE.md, R3). Which
// one is best depends on the times of tasks, so the cost model chooses among rules.
//
// Plain values in, plain values out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// Communication always goes first, because another rank waits for it. The chain goes from its end to its
// beginning (nearly finished work frees memory and feeds the network), or from its beginning. The weight
// gradients go last, those whose inputs come first before the others, or in the chain by their depth.
enum class LaneRule : uint8_t {
  kFromEnd = 0,
  kFromBegin = 1,
  kFromEndWithGrads = 2,
  kFromBeginWithGrads = 3,
};

inline constexpr std::array<LaneRule, 4> kLaneRules = {
    LaneRule::kFromEnd, LaneRule::kFromBegin, LaneRule::kFromEndWithGrads, LaneRule::kFromBeginWithGrads};

// The lane priority of each family, counted from 0 in each entry. Families come after those they wait for.
// `rules` are by EntryId; missing ones are kFromEnd.
std::vector<int32_t> rankFamilies(const TaskProgram& program, std::span<const LaneRule> rules = {});

// Sets these priorities; a lane of several families gets the priority of its first task.
TaskProgram orderQueues(TaskProgram program, std::span<const LaneRule> rules);

}  // namespace sluice
