#include "runtime/program/space_table.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

constexpr uint8_t bits(std::initializer_list<EventSpace> spaces) {
  uint32_t set = 0;
  for (EventSpace space : spaces) set |= 1u << static_cast<uint32_t>(space);
  return static_cast<uint8_t>(set);
}

using E = EventSpace;
constexpr uint8_t kRowExtents = bits({E::kRows, E::kExperts, E::kGroups});

// By SpaceKind. A piece belongs to a slot of the receiving rank: a send has an index at that rank only, a
// return at its own rank only. A task of a group has several slots, none of which is its own.
constexpr std::array<SpaceInfo, static_cast<size_t>(SpaceKind::MAX) + 1> kSpaces = {{
    {"it works on tokens of this rank, in order", false, true, false, E::kTokens, bits({E::kOne, E::kTokens}),
     bits({E::kOne, E::kTokens})},
    {"it works on rows of one expert, in slots of at most that size", false, false, true, E::kRows,
     kRowExtents | bits({E::kOne}), kRowExtents | bits({E::kOne})},
    {"it sends pieces, the rows of one slot of a receiver that start at this rank", false, false, true,
     E::kOne, bits({E::kOne}), kRowExtents},
    {"it sends the pieces that this rank received back to where they came from", false, false, false, E::kOne,
     kRowExtents | bits({E::kOne}), bits({E::kOne})},
    {"it sums over all rows of an expert of this rank", true, false, true, E::kExperts,
     bits({E::kOne, E::kExperts}), bits({E::kOne, E::kExperts})},
    {"it sums over all tokens of this rank", true, true, false, E::kOne, bits({E::kOne}), bits({E::kOne})},
    {"it works on rows of one expert, on neighbouring slots together", false, false, true, E::kGroups,
     bits({E::kOne, E::kExperts, E::kGroups}), bits({E::kOne, E::kExperts, E::kGroups})},
}};

// By EventSpace.
constexpr std::array<SpaceKind, static_cast<size_t>(EventSpace::MAX) + 1> kCounted = {
    SpaceKind::kOnce, SpaceKind::kRows, SpaceKind::kExperts, SpaceKind::kTokens, SpaceKind::kGroups};

struct RuleInfo {
  bool hasFactor;
  std::string_view phrase;
};

// By ThresholdRule.
constexpr std::array<RuleInfo, static_cast<size_t>(ThresholdRule::MAX) + 1> kRules = {{
    {true, "constant"},
    {false, "rows of the slot"},
    {true, "constant x slots of the expert"},
    {false, "rows of the expert"},
    {false, "rows that return"},
    {true, "constant x slots of tokens"},
    {true, "constant x slots of the group"},
    {true, "constant x groups of the expert"},
    {true, "constant x experts of the rank"},
    {true, "constant x slots of rows"},
    {true, "constant x groups of slots"},
}};

bool isIn(uint8_t set, EventSpace space) { return (set >> static_cast<uint32_t>(space) & 1) != 0; }

}  // namespace

const SpaceInfo& findInfo(SpaceKind kind) { return kSpaces[static_cast<size_t>(kind)]; }

SpaceKind countedSpace(EventSpace space) { return kCounted[static_cast<size_t>(space)]; }

bool canWait(SpaceKind task, EventSpace event) { return isIn(findInfo(task).waits, event); }
bool canSignal(SpaceKind task, EventSpace event) { return isIn(findInfo(task).signals, event); }

std::optional<EventSpace> finestEvent(SpaceKind from, SpaceKind to) {
  for (EventSpace event : {E::kRows, E::kTokens, E::kGroups, E::kExperts, E::kOne})
    if (canSignal(from, event) && canWait(to, event)) return event;
  return std::nullopt;
}

bool isSlotLocal(SpaceKind producer, SpaceKind consumer, EventSpace event) {
  return producer == consumer && event != E::kOne && event == findInfo(producer).own;
}

bool hasFactor(ThresholdRule rule) { return kRules[static_cast<size_t>(rule)].hasFactor; }
std::string_view findPhrase(ThresholdRule rule) { return kRules[static_cast<size_t>(rule)].phrase; }

Threshold delivered(const TaskProgram& program, EventSpace event, EventUnit unit, SpaceKind producers,
                    int64_t tiles) {
  if (unit == EventUnit::kRows) {
    if (event == E::kRows || event == E::kGroups) return {ThresholdRule::kRowsOfSlot, 0};
    return {event == E::kExperts ? ThresholdRule::kRowsOfExpert : ThresholdRule::kValidPairs, 0};
  }
  if (producers == SpaceKind::kRows && event == E::kExperts) return {ThresholdRule::kSlotsOfExpert, tiles};
  if (producers == SpaceKind::kRows && event == E::kGroups) return {ThresholdRule::kSlotsOfGroup, tiles};
  if (producers == SpaceKind::kGroups && event == E::kExperts) return {ThresholdRule::kGroupsOfExpert, tiles};
  if (producers == SpaceKind::kRows && event == E::kOne) return {ThresholdRule::kSlotsOfRows, tiles};
  if (producers == SpaceKind::kGroups && event == E::kOne) return {ThresholdRule::kSlotsOfGroups, tiles};
  if (producers == SpaceKind::kTokens && event == E::kOne) return {ThresholdRule::kSlotsOfTokens, tiles};
  if (producers != SpaceKind::kExperts || event != E::kOne) return {ThresholdRule::kConstant, tiles};
  if (program.expertsDiffer()) return {ThresholdRule::kExpertsOfRank, tiles};
  return {ThresholdRule::kConstant, tiles * program.maxExperts()};
}

bool takesOwnLast(const TaskProgram& program, EntryId entry) {
  const auto has = [&](SpaceKind space) {
    return std::ranges::any_of(program.families, [&](const Family& family) {
      return family.entry == entry && program.at(family.space).kind == space;
    });
  };
  return has(SpaceKind::kReturns) && !has(SpaceKind::kSends);
}

const Space* findSpace(const TaskProgram& program, SpaceKind kind) {
  for (const Space& space : program.spaces)
    if (space.kind == kind) return &space;
  return nullptr;
}

int64_t largestExtent(const TaskProgram& program, Extent extent) {
  const int64_t tokens = program.maxTokens;
  switch (extent) {
    case Extent::kFixed:
      return 1;
    case Extent::kTokens:
      return tokens;
    // The experts of a token are distinct: this is the most that one rank can own.
    case Extent::kRows:
      return program.mesh.sources() * tokens * std::min(program.topK, program.maxExperts());
    case Extent::kPairs:
      return tokens * program.topK * program.mesh.tp;
    case Extent::kExperts:
      return program.maxExperts();
  }
  return 1;
}

int64_t balancedExtent(const TaskProgram& program, Extent extent) {
  const int64_t pairs = int64_t{program.maxTokens} * program.topK;
  if (extent == Extent::kRows) return pairs * program.mesh.sources() / program.mesh.ep;
  return extent == Extent::kPairs ? pairs * program.mesh.tp : largestExtent(program, extent);
}

}  // namespace sluice
