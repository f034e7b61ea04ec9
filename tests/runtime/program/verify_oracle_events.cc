#include "tests/runtime/program/verify_oracle_events.h"

#include <algorithm>

namespace sluice {
namespace {

int tokenSlots(const TaskProgram& program, const OracleRank& rank) {
  for (uint32_t s = 0; s < program.spaces.size(); ++s)
    if (program.spaces[s].kind == SpaceKind::kTokens) return oracleSlots(program, SpaceId{s}, rank);
  return 0;
}

// Returns the index of a piece in `event`. The piece belongs to a slot, a group and an expert of the rank
// that received it.
int pieceIndex(const OraclePiece& piece, const EventArray& event) {
  if (event.space == EventSpace::kGroups) return piece.group;
  return event.space == EventSpace::kRows ? piece.slot : piece.expert;
}

}  // namespace

int oracleSlots(const TaskProgram& program, SpaceId id, const OracleRank& rank) {
  const Space& space = program.at(id);
  switch (space.kind) {
    case SpaceKind::kTokens:
      return (rank.tokens + space.slotSize - 1) / space.slotSize;
    case SpaceKind::kRows:
      return static_cast<int>(rank.slots.size());
    case SpaceKind::kSends:
      return static_cast<int>(rank.sends.size());
    case SpaceKind::kReturns:
      return static_cast<int>(rank.returns.size());
    case SpaceKind::kExperts:
      return static_cast<int>(rank.experts.size());
    case SpaceKind::kOnce:
      return 1;
    case SpaceKind::kGroups:
      return static_cast<int>(rank.groups.size());
  }
  return 0;
}

size_t oracleCounters(const TaskProgram& program, EventSpace space, const OracleRank& rank) {
  switch (space) {
    case EventSpace::kOne:
      return 1;
    case EventSpace::kRows:
      return rank.slots.size();
    case EventSpace::kExperts:
      return rank.experts.size();
    case EventSpace::kTokens:
      return tokenSlots(program, rank);
    case EventSpace::kGroups:
      return rank.groups.size();
  }
  return 0;
}

std::optional<int64_t> oracleThreshold(const TaskProgram& program, const EventArray& event, int index,
                                       const OracleRank& rank) {
  const bool ofSlots = event.space == EventSpace::kRows, ofExperts = event.space == EventSpace::kExperts,
             ofGroups = event.space == EventSpace::kGroups;
  switch (event.rule) {
    case ThresholdRule::kConstant:
      return event.factor;
    case ThresholdRule::kRowsOfSlot:
      if (ofSlots) return rank.slots[index].rows;
      if (ofGroups) return rank.groups[index].rows;
      break;
    case ThresholdRule::kRowsOfExpert:
      if (ofExperts) return rank.experts[index].rows;
      break;
    case ThresholdRule::kSlotsOfExpert:
      if (ofExperts)
        return event.factor * std::count_if(rank.slots.begin(), rank.slots.end(),
                                            [&](const OracleSlot& s) { return s.expert == index; });
      break;
    case ThresholdRule::kValidPairs:
      if (event.space == EventSpace::kOne) return rank.returned;
      break;
    case ThresholdRule::kSlotsOfTokens:
      if (event.space == EventSpace::kOne) return event.factor * tokenSlots(program, rank);
      break;
    case ThresholdRule::kSlotsOfGroup:
      if (ofGroups) return event.factor * rank.groups[index].slots;
      break;
    case ThresholdRule::kGroupsOfExpert:
      if (ofExperts)
        return event.factor * std::count_if(rank.groups.begin(), rank.groups.end(),
                                            [&](const OracleGroup& g) { return g.expert == index; });
      break;
    case ThresholdRule::kSlotsOfRows:
      if (event.space == EventSpace::kOne) return event.factor * std::ssize(rank.slots);
      break;
    case ThresholdRule::kSlotsOfGroups:
      if (event.space == EventSpace::kOne) return event.factor * std::ssize(rank.groups);
      break;
    case ThresholdRule::kExpertsOfRank:
      if (event.space == EventSpace::kOne) return event.factor * static_cast<int64_t>(rank.experts.size());
      break;
  }
  return std::nullopt;
}

int oracleWaitIndex(SpaceKind kind, int slot, const EventArray& event, const OracleRank& rank) {
  if (event.space == EventSpace::kOne) return 0;
  if (event.space == EventSpace::kTokens) return kind == SpaceKind::kTokens ? slot : -1;
  const bool rows = event.space == EventSpace::kRows, groups = event.space == EventSpace::kGroups;
  switch (kind) {
    case SpaceKind::kRows:
      if (groups) return rank.slots[slot].group;
      return rows ? slot : rank.slots[slot].expert;
    case SpaceKind::kGroups:
      if (groups) return slot;
      return rows ? -1 : rank.groups[slot].expert;
    case SpaceKind::kExperts:
      return rows || groups ? -1 : slot;
    case SpaceKind::kReturns:
      return pieceIndex(rank.returns[slot], event);
    case SpaceKind::kSends:  // its slot and expert are of another rank
    case SpaceKind::kTokens:
    case SpaceKind::kOnce:
      return -1;
  }
  return -1;
}

std::optional<OracleSignal> oracleSignal(SpaceKind kind, int slot, const EventArray& event,
                                         const OracleRank& here, int rank) {
  const bool sends = kind == SpaceKind::kSends, returns = kind == SpaceKind::kReturns;
  const bool rows = event.unit == EventUnit::kRows;
  if (!sends && !returns) {
    if (event.remote || rows) return std::nullopt;
    const int index = oracleWaitIndex(kind, slot, event, here);
    return index < 0 ? std::nullopt : std::optional(OracleSignal{rank, index, 1});
  }
  const OraclePiece& piece = sends ? here.sends[slot] : here.returns[slot];
  const bool one = event.space == EventSpace::kOne;
  // The receiver has the piece's slot and expert: the sender means them by remote events only, the receiver
  // by its own.
  if (event.space == EventSpace::kTokens || (!one && sends != event.remote)) return std::nullopt;
  const int to = event.remote ? (sends ? piece.to : piece.from) : rank;
  return OracleSignal{to, one ? 0 : pieceIndex(piece, event), rows ? piece.rows : 1};
}

std::vector<OracleTask> oracleSeat(const TaskProgram& program, const Lane& lane, int core,
                                   const OracleRank& rank) {
  std::vector<OracleTask> tasks;
  const int64_t length = program.at(lane.space).window, live = oracleSlots(program, lane.space, rank);
  const auto cores = static_cast<int64_t>(lane.seats.size());
  for (int64_t window = 0; window * length < live; ++window) {
    const int64_t seat = ((core - window * lane.rotation) % cores + cores) % cores;
    for (const TaskRecord& record : lane.seats[seat]) {
      const int64_t slot = window * length + record.slot;
      if (slot < live)
        tasks.push_back({record.family, static_cast<int>(slot), static_cast<int>(record.tile)});
    }
  }
  return tasks;
}

}  // namespace sluice
