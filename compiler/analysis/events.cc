#include "compiler/analysis/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

namespace sluice {
namespace {

constexpr size_t kMaxSync = 2;  // waits, and signals, of a task record

struct EventShape {
  const char* prefix;  // of the name, before the producer's
  const char* suffix;  // behind it; null: the prefix is the whole name
  EventSpace space;
  ThresholdRule rule;
};

// What an event between two spaces looks like; the rules of docs/SCHEDULE.md. Without a suffix the
// prefix is the whole name.
std::optional<EventShape> shapeBetween(SpaceKind from, SpaceKind to) {
  const bool toRows = to == SpaceKind::kRows || to == SpaceKind::kReturns;
  switch (from) {
    case SpaceKind::kSends:
      if (toRows) return EventShape{"rows_arrived", nullptr, EventSpace::kRows, ThresholdRule::kRowsOfSlot};
      if (to == SpaceKind::kGroups)
        return EventShape{"group_rows", nullptr, EventSpace::kGroups, ThresholdRule::kRowsOfSlot};
      if (to == SpaceKind::kExperts)
        return EventShape{"expert_rows", nullptr, EventSpace::kExperts, ThresholdRule::kRowsOfExpert};
      return std::nullopt;
    case SpaceKind::kReturns:
      if (to == SpaceKind::kTokens)
        return EventShape{"returned", nullptr, EventSpace::kOne, ThresholdRule::kValidPairs};
      return std::nullopt;
    case SpaceKind::kRows:
      if (toRows) return EventShape{"", "_done", EventSpace::kRows, ThresholdRule::kConstant};
      if (to == SpaceKind::kGroups)
        return EventShape{"group_", "", EventSpace::kGroups, ThresholdRule::kSlotsOfGroup};
      if (to == SpaceKind::kExperts)
        return EventShape{"expert_", "", EventSpace::kExperts, ThresholdRule::kSlotsOfExpert};
      return std::nullopt;
    case SpaceKind::kTokens:
      if (to == SpaceKind::kTokens)
        return EventShape{"", "_done", EventSpace::kTokens, ThresholdRule::kConstant};
      if (to == SpaceKind::kOnce || to == SpaceKind::kSends)
        return EventShape{"all_", "", EventSpace::kOne, ThresholdRule::kSlotsOfTokens};
      return std::nullopt;
    case SpaceKind::kExperts:
      if (toRows || to == SpaceKind::kGroups)
        return EventShape{"", "_done", EventSpace::kExperts, ThresholdRule::kConstant};
      return std::nullopt;
    case SpaceKind::kGroups:
      if (toRows || to == SpaceKind::kGroups)
        return EventShape{"", "_done", EventSpace::kGroups, ThresholdRule::kConstant};
      if (to == SpaceKind::kExperts)
        return EventShape{"expert_", "", EventSpace::kExperts, ThresholdRule::kGroupsOfExpert};
      return std::nullopt;
    case SpaceKind::kOnce:
      if (to == SpaceKind::kTokens)
        return EventShape{"", "_done", EventSpace::kOne, ThresholdRule::kConstant};
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<EventArray> eventBetween(const Family& producer, SpaceKind from, SpaceKind to) {
  const std::optional<EventShape> shape = shapeBetween(from, to);
  if (!shape) return std::nullopt;
  EventArray event;
  event.entry = producer.entry;
  event.name = shape->suffix == nullptr ? shape->prefix : shape->prefix + producer.name + shape->suffix;
  event.space = shape->space;
  event.rule = shape->rule;
  event.remote = from == SpaceKind::kSends || from == SpaceKind::kReturns;
  event.unit = event.remote ? EventUnit::kRows : EventUnit::kTasks;
  if (!event.remote) event.factor = producer.tiles;
  return event;
}

class Planner {
 public:
  explicit Planner(const TaskProgram& program) {
    draft_.program = program;
    draft_.program.events.clear();
    draft_.sync.resize(program.families.size());
  }

  Analyzed<EventPlan> run() {
    findReaders();
    for (uint32_t f = 0; f < draft_.sync.size(); ++f) {
      if (auto finding = findWriters(f)) return *finding;
      if (auto finding = joinProducers(f)) return *finding;
      table_.push_back(coverageOf(draft_, table_, kind(f), draft_.sync[f].waits));
    }
    for (uint32_t f = 0; f < draft_.sync.size(); ++f)
      if (auto finding = checkSignals(f)) return *finding;
    return EventPlan{std::move(draft_.program.events), std::move(draft_.sync)};
  }

 private:
  const Family& family(uint32_t f) const { return draft_.program.families[f]; }
  SpaceKind kind(uint32_t f) const { return draft_.program.at(family(f).space).kind; }
  const std::string& bufferName(BufferId b) const { return draft_.program.at(b).name; }

  // Spaces in which a family's results are read in its entry, as bits.
  void findReaders() {
    std::map<std::pair<EntryId, BufferId>, uint32_t> writers;
    readers_.resize(draft_.sync.size());
    for (uint32_t f = 0; f < draft_.sync.size(); ++f) {
      for (BufferId buffer : family(f).reads)
        if (const auto it = writers.find({family(f).entry, buffer}); buffer && it != writers.end())
          readers_[it->second] |= 1u << static_cast<uint32_t>(kind(f));
      for (BufferId buffer : family(f).writes)
        if (buffer) writers.try_emplace({family(f).entry, buffer}, f);
    }
  }

  // The space whose slots a reader in `to` waits for: its own. Where slots, groups and experts are waited
  // for, which are more events than a task signals, slots wait for their group.
  SpaceKind waitingSpace(uint32_t producer, SpaceKind to) const {
    const auto isRead = [&](SpaceKind by) {
      return (readers_[producer] >> static_cast<uint32_t>(by) & 1) != 0;
    };
    const bool slots = to == SpaceKind::kRows || to == SpaceKind::kReturns;
    return slots && isRead(SpaceKind::kGroups) && isRead(SpaceKind::kExperts) ? SpaceKind::kGroups : to;
  }

  std::optional<Finding> findWriters(uint32_t f) {
    for (BufferId buffer : family(f).writes) {
      if (buffer.none()) continue;
      const auto [it, fresh] = writers_.try_emplace({family(f).entry, buffer}, f);
      if (!fresh)
        return Finding{f,
                       fmt::format("'{}' writes '{}', which '{}' already writes", family(f).name,
                                   bufferName(buffer), family(it->second).name),
                       it->second, fmt::format("'{}' is written here", bufferName(buffer))};
    }
    return std::nullopt;
  }

  // Latest producer first: what it waited for need not be waited for again.
  std::optional<Finding> joinProducers(uint32_t f) {
    std::map<uint32_t, Scope, std::greater<>> producers;  // the scope that the widest read of it needs
    for (BufferId buffer : family(f).reads) {
      if (buffer.none()) continue;
      if (const auto it = writers_.find({family(f).entry, buffer}); it != writers_.end()) {
        if (it->second == f)
          return Finding{f,
                         fmt::format("'{}' reads '{}', which it writes", family(f).name, bufferName(buffer))};
        Scope& scope = producers[it->second];
        scope = std::max(scope, scopeNeeded(kind(f), draft_.program.at(buffer).shape[0].extent));
      } else if (draft_.program.at(buffer).role == Role::kTemp) {
        return Finding{f, fmt::format("'{}' reads '{}', which no family before it writes", family(f).name,
                                      bufferName(buffer))};
      }
    }
    for (const auto& [producer, scope] : producers)
      if (auto finding = join(f, producer, scope)) return finding;
    if (draft_.sync[f].waits.size() > kMaxSync)
      return Finding{f, fmt::format("'{}' would wait for {} events, expected at most {}", family(f).name,
                                    draft_.sync[f].waits.size(), kMaxSync)};
    return std::nullopt;
  }

  std::optional<Finding> join(uint32_t f, uint32_t producer, Scope needed) {
    const std::vector<Scope> covered = coverageOf(draft_, table_, kind(f), draft_.sync[f].waits);
    if (covered[producer] >= needed) return std::nullopt;
    std::optional<EventArray> event =
        eventBetween(family(producer), kind(producer), waitingSpace(producer, kind(f)));
    if (!event)
      return Finding{f,
                     fmt::format("'{}' reads what '{}' writes, but no event leads from its space to this one",
                                 family(f).name, family(producer).name),
                     producer, "the producer is here"};
    draft_.sync[f].waits.push_back(addEvent(producer, std::move(*event)));
    return std::nullopt;
  }

  // The producer's event of that space, made at first use.
  EventId addEvent(uint32_t producer, EventArray event) {
    std::vector<EventId>& signals = draft_.sync[producer].signals;
    for (EventId id : signals)
      if (draft_.program.at(id).space == event.space) return id;
    for (const EventArray& other : draft_.program.events)
      if (other.entry == event.entry && other.name == event.name) {
        event.name = family(producer).name + "." + event.name;
        break;
      }
    const EventId id{static_cast<uint32_t>(draft_.program.events.size())};
    draft_.program.events.push_back(std::move(event));
    signals.push_back(id);
    return id;
  }

  std::optional<Finding> checkSignals(uint32_t f) const {
    const size_t count = draft_.sync[f].signals.size();
    if (count > kMaxSync)
      return Finding{f, fmt::format("'{}' would signal {} events, expected at most {}", family(f).name, count,
                                    kMaxSync)};
    const bool remote = kind(f) == SpaceKind::kSends || kind(f) == SpaceKind::kReturns;
    if (remote && count == 0)
      return Finding{f, fmt::format("nothing reads what '{}' sends to other ranks, so nobody waits for it",
                                    family(f).name)};
    return std::nullopt;
  }

  Draft draft_;
  CoverageTable table_;
  std::map<std::pair<EntryId, BufferId>, uint32_t> writers_;
  std::vector<uint32_t> readers_;  // by family, bits by SpaceKind
};

}  // namespace

Scope scopeNeeded(SpaceKind reader, Extent extent) {
  switch (extent) {
    case Extent::kRows:
      if (reader == SpaceKind::kGroups) return Scope::kGroup;
      return reader == SpaceKind::kExperts ? Scope::kExpert : Scope::kSlot;
    case Extent::kTokens:
      return reader == SpaceKind::kTokens ? Scope::kSlot : Scope::kAll;
    case Extent::kFixed:  // weights, by expert for rows
    case Extent::kExperts:
      return reader == SpaceKind::kRows || reader == SpaceKind::kGroups ? Scope::kExpert : Scope::kAll;
    case Extent::kPairs:
      return Scope::kAll;
  }
  return Scope::kAll;
}

Analyzed<EventPlan> planEvents(const TaskProgram& program) { return Planner(program).run(); }

}  // namespace sluice
