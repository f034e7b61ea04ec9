// order-queues: the order in which a core tries its lanes. No order can hang (docs/SCHEDULE.md, R3); which is
// best depends on the times of tasks, so that the cost model chooses among rules.
//
// Plain values in, plain values out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
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

// The lane priority of each family, from 0 in each entry. Families stand after those they wait for. `rules`
// are by entry; those that are not given are kFromEnd.
std::vector<int32_t> rankFamilies(const TaskProgram& program, std::span<const LaneRule> rules = {});

// Gives lanes these priorities; a lane of several families goes with that of its first task.
TaskProgram orderQueues(TaskProgram program, std::span<const LaneRule> rules);

}  // namespace sluice
