// Event arrays: that every task that uses one has an index in it, that thresholds are what is delivered
// for every routing, and that nothing signalled by another rank is left behind.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

// Whether the index follows from the task. A piece belongs to a slot of the receiving rank: to a sender it
// gives an index there only, to the receiver (returns) one here only.
bool canWait(SpaceKind task, EventSpace event) {
  switch (task) {
    case SpaceKind::kTokens:
      return event == EventSpace::kOne || event == EventSpace::kTokens;
    case SpaceKind::kRows:
    case SpaceKind::kReturns:
      return event != EventSpace::kTokens;
    case SpaceKind::kSends:
    case SpaceKind::kOnce:
      return event == EventSpace::kOne;
    case SpaceKind::kExperts:
      return event == EventSpace::kOne || event == EventSpace::kExperts;
    case SpaceKind::kGroups:  // of several slots: none is its own
      return event == EventSpace::kOne || event == EventSpace::kExperts || event == EventSpace::kGroups;
  }
  return false;
}

// As canWait, and only where some threshold rule can say what is delivered: nothing counts, for example,
// all live slots of a rank.
bool canSignal(SpaceKind task, EventSpace event) {
  switch (task) {
    case SpaceKind::kTokens:
      return event == EventSpace::kTokens || event == EventSpace::kOne;
    case SpaceKind::kRows:
    case SpaceKind::kSends:
      return event == EventSpace::kRows || event == EventSpace::kExperts || event == EventSpace::kGroups;
    case SpaceKind::kReturns:
      return event == EventSpace::kOne;
    case SpaceKind::kExperts:
      return event == EventSpace::kOne || event == EventSpace::kExperts;
    case SpaceKind::kOnce:
      return event == EventSpace::kOne;
    case SpaceKind::kGroups:
      return event == EventSpace::kGroups || event == EventSpace::kExperts;
  }
  return false;
}

struct Threshold {
  ThresholdRule rule;
  int64_t factor;
  friend bool operator==(const Threshold&, const Threshold&) = default;
};

std::string thresholdText(const Threshold& t) {
  const bool counted = t.rule == ThresholdRule::kConstant || t.rule == ThresholdRule::kSlotsOfExpert ||
                       t.rule == ThresholdRule::kSlotsOfTokens || t.rule == ThresholdRule::kSlotsOfGroup ||
                       t.rule == ThresholdRule::kGroupsOfExpert || t.rule == ThresholdRule::kExpertsOfRank;
  return counted || t.factor != 0 ? fmt::format("{} (factor {})", nameOf(t.rule), t.factor)
                                  : std::string(nameOf(t.rule));
}

// What producers of one space deliver, by tasks (`tiles` in all of them together) or by rows.
Threshold delivered(const TaskProgram& program, const EventArray& event, SpaceKind producers, int64_t tiles) {
  if (event.unit == EventUnit::kRows) {
    if (event.space == EventSpace::kRows || event.space == EventSpace::kGroups)
      return {ThresholdRule::kRowsOfSlot, 0};
    if (event.space == EventSpace::kExperts) return {ThresholdRule::kRowsOfExpert, 0};
    return {ThresholdRule::kValidPairs, 0};
  }
  if (producers == SpaceKind::kRows && event.space == EventSpace::kExperts)
    return {ThresholdRule::kSlotsOfExpert, tiles};
  if (producers == SpaceKind::kRows && event.space == EventSpace::kGroups)
    return {ThresholdRule::kSlotsOfGroup, tiles};
  if (producers == SpaceKind::kGroups && event.space == EventSpace::kExperts)
    return {ThresholdRule::kGroupsOfExpert, tiles};
  if (producers == SpaceKind::kExperts && event.space == EventSpace::kOne) {
    if (program.expertsDiffer()) return {ThresholdRule::kExpertsOfRank, tiles};
    return {ThresholdRule::kConstant, tiles * program.mostExperts()};
  }
  if (producers == SpaceKind::kTokens && event.space == EventSpace::kOne)
    return {ThresholdRule::kSlotsOfTokens, tiles};
  return {ThresholdRule::kConstant, tiles};
}

Status checkHeader(const TaskProgram& program, EventId id) {
  const EventArray& event = program.at(id);
  const auto known = [](auto value, auto last) {
    return static_cast<uint32_t>(value) <= static_cast<uint32_t>(last);
  };
  if (!inRange(event.entry, program.entries))
    return fail("event '{}' belongs to entry {}, but the program declares {} entries", event.name,
                event.entry.value, program.entries.size());
  if (!known(event.space, EventSpace::kGroups))
    return fail("event '{}': space {} is not known", event.name, static_cast<int>(event.space));
  if (!known(event.unit, EventUnit::kRows))
    return fail("event '{}': unit {} is not known", event.name, static_cast<int>(event.unit));
  if (!known(event.rule, ThresholdRule::kExpertsOfRank))
    return fail("event '{}': threshold rule {} is not known", event.name, static_cast<int>(event.rule));
  const bool grouped = std::any_of(program.spaces.begin(), program.spaces.end(),
                                   [](const Space& space) { return space.kind == SpaceKind::kGroups; });
  if (event.space == EventSpace::kGroups && !grouped)
    return fail("{} is of groups of slots, but the program has no such space", nameOf(program, id));
  return {};
}

Status checkProducers(const TaskProgram& program, EventId id, const EventUse& use) {
  const EventArray& event = program.at(id);
  const std::string where = nameOf(program, id);
  if (use.producers.empty()) return fail("no family signals {}", where);
  const SpaceKind kind = kindOf(program, use.producers.front());
  int64_t tiles = 0;
  for (FamilyId family : use.producers) {
    const SpaceKind own = kindOf(program, family);
    if (!canSignal(own, event.space))
      return fail("{} is in space {} and cannot signal {} of space {}", nameOf(program, family), nameOf(own),
                  where, nameOf(event.space));
    if (own != kind)
      return fail("{} is signalled by family '{}' of space {} and family '{}' of space {}", where,
                  program.at(use.producers.front()).name, nameOf(kind), program.at(family).name, nameOf(own));
    tiles += program.at(family).tiles;
  }
  const bool remote = writesRemotely(kind);
  if (event.remote != remote)
    return fail("{} is {}remote, but {} signals {}", where, event.remote ? "" : "not ",
                nameOf(program, use.producers.front()), remote ? "other ranks" : "its own rank");
  if ((event.unit == EventUnit::kRows) != remote)
    return fail("{} counts {}, but {} is in space {}", where, remote ? "tasks" : "rows",
                nameOf(program, use.producers.front()), nameOf(kind));
  if (remote && use.producers.size() > 1)
    return fail("{} is signalled by {} and by {}: rows are counted for one family only", where,
                nameOf(program, use.producers[0]), nameOf(program, use.producers[1]));
  const Threshold found{event.rule, event.factor}, expected = delivered(program, event, kind, tiles);
  if (found != expected)
    return fail("{} has threshold {}, but {} delivers {}", where, thresholdText(found),
                nameOf(program, use.producers.front()), thresholdText(expected));
  return {};
}

// Whether a family of this space has a task that waits for each index at which anything can arrive.
bool waitsForEvery(const TaskProgram& program, SpaceKind task, EventSpace event) {
  switch (event) {
    case EventSpace::kRows:
      return task == SpaceKind::kRows || task == SpaceKind::kReturns;
    case EventSpace::kExperts:
      return task != SpaceKind::kTokens && task != SpaceKind::kSends;
    // Pairs arrive at ranks with tokens; such a rank may still have no rows, and own no expert.
    case EventSpace::kOne:
      if (task == SpaceKind::kExperts) return program.deal().fewest() > 0;
      return task != SpaceKind::kRows && task != SpaceKind::kReturns && task != SpaceKind::kGroups;
    case EventSpace::kTokens:
      return task == SpaceKind::kTokens;
    case EventSpace::kGroups:
      return task == SpaceKind::kGroups || task == SpaceKind::kRows || task == SpaceKind::kReturns;
  }
  return false;
}

Status checkConsumers(const TaskProgram& program, EventId id, const EventUse& use) {
  const EventArray& event = program.at(id);
  bool everyIndex = false;
  for (FamilyId family : use.consumers) {
    const SpaceKind kind = kindOf(program, family);
    if (!canWait(kind, event.space))
      return fail("{} is in space {} and cannot wait for {} of space {}", nameOf(program, family),
                  nameOf(kind), nameOf(program, id), nameOf(event.space));
    everyIndex = everyIndex || waitsForEvery(program, kind, event.space);
  }
  if (event.remote && !everyIndex)
    return fail("{} is signalled by other ranks, but no family waits for every one of its counters",
                nameOf(program, id));
  return {};
}

// What comes from other ranks is announced: a rank that has finished the entry has got all of it.
Status checkArrivals(const TaskProgram& program, const std::vector<EventUse>& uses) {
  std::vector<bool> announced(program.families.size());
  for (const EventUse& use : uses)
    for (FamilyId family : use.producers) announced[family.value] = true;
  for (uint32_t i = 0; i < announced.size(); ++i)
    if (!announced[i] && writesRemotely(kindOf(program, FamilyId{i})))
      return fail("{} writes at other ranks, but signals no event: they cannot tell when all has arrived",
                  nameOf(program, FamilyId{i}));
  return {};
}

}  // namespace

std::vector<EventUse> collectEventUses(const TaskProgram& program, const std::vector<FamilyTable>& tables) {
  std::vector<EventUse> uses(program.events.size());
  for (uint32_t i = 0; i < tables.size(); ++i) {
    for (EventId id : tables[i].signals)
      if (id) uses[id.value].producers.push_back(FamilyId{i});
    for (EventId id : tables[i].waits)
      if (id) uses[id.value].consumers.push_back(FamilyId{i});
  }
  return uses;
}

Status checkEvents(const TaskProgram& program, const std::vector<EventUse>& uses) {
  for (uint32_t i = 0; i < program.events.size(); ++i) {
    const EventId id{i};
    if (Status status = checkHeader(program, id); !status) return status;
    if (Status status = checkProducers(program, id, uses[i]); !status) return status;
    if (Status status = checkConsumers(program, id, uses[i]); !status) return status;
  }
  return checkArrivals(program, uses);
}

}  // namespace sluice::verify_parts
