// Event arrays: every task that uses one has an index in it, thresholds equal the number that is delivered
// for every routing, and every signal of another rank is waited for.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

std::string thresholdText(const Threshold& t) {
  const std::string_view rule = findPhrase(t.rule);
  return hasFactor(t.rule) || t.factor != 0 ? fmt::format("{} (factor {})", rule, t.factor)
                                            : std::string(rule);
}

Status checkHeader(const TaskProgram& program, EventId id) {
  const EventArray& event = program.at(id);
  if (!inRange(event.entry, program.entries))
    return fail("event '{}' belongs to entry {}, but the program declares {} entries", event.name,
                event.entry.value, program.entries.size());
  if (event.space > EventSpace::MAX)
    return fail("event '{}': space {} is not known", event.name, static_cast<int>(event.space));
  if (event.unit > EventUnit::MAX)
    return fail("event '{}': unit {} is not known", event.name, static_cast<int>(event.unit));
  if (event.rule > ThresholdRule::MAX)
    return fail("event '{}': threshold rule {} is not known", event.name, static_cast<int>(event.rule));
  if (event.space == EventSpace::kGroups && findSpace(program, SpaceKind::kGroups) == nullptr)
    return fail("{} is of groups of slots, but the program has no such space", fullName(program, id));
  return {};
}

Status checkProducers(const TaskProgram& program, EventId id, const EventUse& use) {
  const EventArray& event = program.at(id);
  const std::string where = fullName(program, id);
  if (use.producers.empty()) return fail("no family signals {}", where);
  const SpaceKind kind = spaceKindIn(program, use.producers.front());
  int64_t tiles = 0;
  for (FamilyId family : use.producers) {
    const SpaceKind own = spaceKindIn(program, family);
    if (!canSignal(own, event.space))
      return fail("{} is in space {} and cannot signal {} of space {}", fullName(program, family),
                  fullName(own), where, fullName(event.space));
    if (own != kind)
      return fail("{} is signalled by family '{}' of space {} and family '{}' of space {}", where,
                  program.at(use.producers.front()).name, fullName(kind), program.at(family).name,
                  fullName(own));
    tiles += program.at(family).tiles;
  }
  const bool remote = isRemote(kind);
  if (event.remote != remote)
    return fail("{} is {}remote, but {} signals {}", where, event.remote ? "" : "not ",
                fullName(program, use.producers.front()), remote ? "other ranks" : "its own rank");
  if ((event.unit == EventUnit::kRows) != remote)
    return fail("{} counts {}, but {} is in space {}", where, remote ? "tasks" : "rows",
                fullName(program, use.producers.front()), fullName(kind));
  if (remote && use.producers.size() > 1)
    return fail("{} is signalled by {} and by {}: rows are counted for one family only", where,
                fullName(program, use.producers[0]), fullName(program, use.producers[1]));
  const Threshold found{event.rule, event.factor},
      expected = delivered(program, event.space, event.unit, kind, tiles);
  if (found != expected)
    return fail("{} has threshold {}, but {} delivers {}", where, thresholdText(found),
                fullName(program, use.producers.front()), thresholdText(expected));
  return {};
}

// Whether a family of this space has a task that waits for every index at which something can arrive.
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
    const SpaceKind kind = spaceKindIn(program, family);
    if (!canWait(kind, event.space))
      return fail("{} is in space {} and cannot wait for {} of space {}", fullName(program, family),
                  fullName(kind), fullName(program, id), fullName(event.space));
    everyIndex = everyIndex || waitsForEvery(program, kind, event.space);
  }
  if (event.remote && !everyIndex)
    return fail("{} is signalled by other ranks, but no family waits for every one of its counters",
                fullName(program, id));
  return {};
}

// Everything that other ranks write is signalled, so a rank that has finished the entry has received all of
// it.
Status checkArrivals(const TaskProgram& program, const std::vector<EventUse>& uses) {
  std::vector<bool> announced(program.families.size());
  for (const EventUse& use : uses)
    for (FamilyId family : use.producers) announced[family.value] = true;
  for (uint32_t i = 0; i < announced.size(); ++i)
    if (!announced[i] && isRemote(spaceKindIn(program, FamilyId{i})))
      return fail(
          "{} writes at other ranks, but signals no event: they cannot know when everything has arrived",
          fullName(program, FamilyId{i}));
  return {};
}

}  // namespace

std::vector<EventUse> collectEventUses(const TaskProgram& program) {
  std::vector<EventUse> uses(program.events.size());
  for (uint32_t i = 0; i < program.families.size(); ++i) {
    for (EventId id : program.families[i].signals) uses[id.value].producers.push_back(FamilyId{i});
    for (EventId id : program.families[i].waits) uses[id.value].consumers.push_back(FamilyId{i});
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
