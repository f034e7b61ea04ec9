// Lanes: which cores share the tasks of a family (assign-cores), and the order in which a core tries its
// lanes (order-queues). No order can hang (docs/SCHEDULE.md, R3). Which one is best depends on the times of
// tasks, so the cost model chooses among rules.
//
// Plain values in, plain values out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/analysis/finding.h"
#include "runtime/program/program.h"

namespace sluice {

// A range of neighbouring cores of one kind.
struct CoreRange {
  int32_t first = 0;
  int32_t count = 1;
  friend bool operator==(const CoreRange&, const CoreRange&) = default;
};

// The cores that send and return rows.
struct CommunicationCores {
  int32_t reserved = 0;  // vector cores that do nothing else; 0: none
  int32_t sends = 0;     // the most cores that share sends; 0: all that may communicate
  int32_t returns = 0;   // likewise returns
  friend bool operator==(const CommunicationCores&, const CommunicationCores&) = default;
};

// The cores that share the tasks of the family: all cores of its kind. But if vector cores are reserved for
// communication, families that send or return rows get these and the others get the rest; and sends and
// returns get the first of their cores only if fewer are allowed.
CoreRange coresFor(const TaskProgram& program, const Family& family, const CommunicationCores& communication);

// assign-cores: one lane per family, its tasks dealt to the seats of the cores that share it.
//
// `program` has no lanes; after this it has a lane of priority 0 for each family, of the cores that
// coresFor() gives it. Errors: more than 2^20 tasks of a family in a window, by its place; a program that has
// lanes.
Expected<TaskProgram> assignCores(TaskProgram program, const CommunicationCores& communication);

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

// order-queues: sets these priorities; a lane of several families gets the priority of its first task.
TaskProgram orderQueues(TaskProgram program, std::span<const LaneRule> rules);

}  // namespace sluice
