#include "runtime/exec/event_table.h"

#include <algorithm>
#include <cstring>

#include "runtime/program/space_table.h"

namespace sluice {

uint64_t evaluateThreshold(const EventArray& event, const RoutingTables& tables, int64_t index) {
  switch (event.rule) {
    case ThresholdRule::kConstant:
      return event.factor;
    case ThresholdRule::kRowsOfSlot:
      return event.space == EventSpace::kGroups ? tables.groups[index].rows : tables.slots[index].rows;
    case ThresholdRule::kSlotsOfExpert:
      return event.factor * tables.expertSlots[index];
    case ThresholdRule::kRowsOfExpert:
      return tables.expertRow[index + 1] - tables.expertRow[index];
    case ThresholdRule::kValidPairs:
      return tables.returned;
    case ThresholdRule::kSlotsOfTokens:
      return event.factor * tables.tokenSlots;
    case ThresholdRule::kSlotsOfGroup:
      return event.factor * tables.groups[index].slots;
    case ThresholdRule::kGroupsOfExpert:
      return event.factor * tables.expertGroups[index];
    case ThresholdRule::kExpertsOfRank:
      return event.factor * tables.experts();
    case ThresholdRule::kSlotsOfRows:
      return event.factor * static_cast<int64_t>(tables.slots.size());
    case ThresholdRule::kSlotsOfGroups:
      return event.factor * static_cast<int64_t>(tables.groups.size());
  }
  return 0;
}

EventTable::EventTable(const Plan& plan, int ranks, SymmetricMemory words) : words_(words), ranks_(ranks) {
  for (const EventArray& event : plan.program().events) {
    arrays_.push_back({arrivals_, {}});
    arrivals_ += static_cast<size_t>(plan.maxEvents(event.space)) * kCacheLine;
  }
  arrivedBefore_.resize(2 * static_cast<size_t>(ranks));
}

size_t EventTable::bytesFor(const Plan& plan, int ranks) {
  size_t lines = 2 * static_cast<size_t>(ranks);  // for arrivals
  for (const EventArray& event : plan.program().events)
    lines += static_cast<size_t>(plan.maxEvents(event.space));
  return lines * kCacheLine;
}

void EventTable::setThresholds(const Plan& plan, EntryId entry, const RoutingTables& tables) {
  const auto& events = plan.program().events;
  for (size_t e = 0; e < events.size(); ++e) {
    if (events[e].entry != entry) continue;
    auto& thresholds = arrays_[e].thresholds;
    thresholds.resize(liveEvents(tables, events[e].space));
    for (size_t i = 0; i < thresholds.size(); ++i)
      thresholds[i] = evaluateThreshold(events[e], tables, static_cast<int64_t>(i));
  }
}

void EventTable::zero(const Plan& plan, EntryId entry) {
  // plain stores, because any rank that writes here next has seen this rank's counts first
  forWords(plan, entry, [this](size_t offset, size_t bytes) {
    for (size_t at = 0; at < bytes; at += kCacheLine)
      std::memset(words_.data + offset + at, 0, sizeof(uint64_t));
  });
}

void EventTable::finish(const Plan& plan, EntryId entry, const RoutingTables& tables) {
  for (FamilyId family : plan.at(entry).families) {
    const SpaceKind space = plan.at(family).space;
    if (!isRemote(space)) continue;
    const auto& rows = space == SpaceKind::kSends ? tables.rowsFrom : tables.returnsFrom;
    for (int source = 0; source < ranks_; ++source)
      arrivedBefore_[arrivalLine(space, source)] += static_cast<uint64_t>(rows[source]);
  }
}

}  // namespace sluice
