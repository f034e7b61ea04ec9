#include "compiler/analysis/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "runtime/program/space_table.h"

namespace sluice {
namespace {

bool signals(const Family& family, EventId event) {
  return std::find(family.signals.begin(), family.signals.end(), event) != family.signals.end();
}

}  // namespace

std::vector<Scope> computeCoverageRow(const TaskProgram& program, const CoverageTable& table,
                                      SpaceKind consumer, const std::vector<EventId>& waits) {
  const auto spaceKindAt = [&](size_t family) { return program.at(program.families[family].space).kind; };
  std::vector<Scope> row(program.families.size(), Scope::kNone);
  const bool everywhere = program.deal().fewest() > 0;
  for (EventId wait : waits) {
    const Scope scope = findScope(program.at(wait).space);
    for (size_t p = 0; p < row.size(); ++p) {
      if (!signals(program.families[p], wait)) continue;
      row[p] = std::max(row[p], scope);
      if (p >= table.size()) continue;
      for (size_t far = 0; far < p; ++far)
        row[far] = std::max(
            row[far], compose(consumer, spaceKindAt(p), spaceKindAt(far), scope, table[p][far], everywhere));
    }
  }
  return row;
}

CoverageTable computeCoverage(const TaskProgram& program) {
  CoverageTable table;
  for (const Family& family : program.families)
    table.push_back(computeCoverageRow(program, table, program.at(family.space).kind, family.waits));
  return table;
}

namespace {

// The prefix and suffix of the producer's name in the name of its event; arrivals have a name without one.
std::string eventName(const Family& producer, SpaceKind from, EventSpace event) {
  if (from == SpaceKind::kReturns) return "returned";
  const bool remote = isRemote(from);
  if (event == EventSpace::kRows && remote) return "rows_arrived";
  if (!remote && event == findInfo(from).own) return producer.name + "_done";
  const std::string scope = event == EventSpace::kOne      ? "all"
                            : event == EventSpace::kGroups ? "group"
                                                           : "expert";
  return scope + "_" + (remote ? "rows" : producer.name);
}

// The finest event that leads from one space to another, by the rules of docs/SCHEDULE.md.
std::optional<EventArray> eventBetween(const TaskProgram& program, const Family& producer, SpaceKind from,
                                       SpaceKind to) {
  const std::optional<EventSpace> space = finestEvent(from, to);
  if (!space) return std::nullopt;
  EventArray event;
  event.entry = producer.entry;
  event.name = eventName(producer, from, *space);
  event.space = *space;
  event.remote = isRemote(from);
  event.unit = event.remote ? EventUnit::kRows : EventUnit::kTasks;
  const Threshold threshold = delivered(program, event.space, event.unit, from, producer.tiles);
  event.rule = threshold.rule;
  event.factor = threshold.factor;
  return event;
}

class EventPlanner {
 public:
  explicit EventPlanner(TaskProgram program) : program_(std::move(program)) {}

  Expected<TaskProgram> run() {
    findReaders();
    for (uint32_t f = 0; f < program_.families.size(); ++f) {
      if (auto error = findWriters(f)) return *error;
      if (auto error = joinProducers(f)) return *error;
      table_.push_back(computeCoverageRow(program_, table_, kind(f), family(f).waits));
    }
    for (uint32_t f = 0; f < program_.families.size(); ++f)
      if (auto error = checkSignals(f)) return *error;
    return std::move(program_);
  }

 private:
  using MaybeError = std::optional<Error>;

  Family& family(uint32_t f) { return program_.families[f]; }
  const Family& family(uint32_t f) const { return program_.families[f]; }
  SpaceKind kind(uint32_t f) const { return program_.at(family(f).space).kind; }
  const std::string& bufferName(BufferId b) const { return program_.at(b).name; }

  // The error about family `f`, with a second line about family `other`.
  Error makeError(uint32_t f, std::string_view message, uint32_t other, std::string_view note) const {
    return Error{errorAt(family(f), message).message + "\n" + reportLine(family(other).source, "note", note)};
  }

  // The spaces, as bits, in which a family's results are read in its entry.
  void findReaders() {
    std::map<std::pair<EntryId, BufferId>, uint32_t> writers;
    readers_.resize(program_.families.size());
    for (uint32_t f = 0; f < program_.families.size(); ++f) {
      for (BufferId buffer : family(f).reads)
        if (const auto it = writers.find({family(f).entry, buffer}); buffer && it != writers.end())
          readers_[it->second] |= 1u << static_cast<uint32_t>(kind(f));
      for (BufferId buffer : family(f).writes)
        if (buffer) writers.try_emplace({family(f).entry, buffer}, f);
    }
  }

  // The space whose slots a reader in `to` waits for: its own. But if slots, groups and experts would all
  // need events, which is more than a task can signal, slots wait for their group.
  SpaceKind waitingSpace(uint32_t producer, SpaceKind to) const {
    const auto isRead = [&](SpaceKind by) {
      return (readers_[producer] >> static_cast<uint32_t>(by) & 1) != 0;
    };
    const bool slots = to == SpaceKind::kRows || to == SpaceKind::kReturns;
    return slots && isRead(SpaceKind::kGroups) && isRead(SpaceKind::kExperts) ? SpaceKind::kGroups : to;
  }

  MaybeError findWriters(uint32_t f) {
    for (BufferId buffer : family(f).writes) {
      if (buffer.none()) continue;
      const auto [it, fresh] = writers_.try_emplace({family(f).entry, buffer}, f);
      if (!fresh)
        return makeError(f,
                         fmt::format("'{}' writes '{}', which '{}' already writes", family(f).name,
                                     bufferName(buffer), family(it->second).name),
                         it->second, fmt::format("'{}' is written here", bufferName(buffer)));
    }
    return std::nullopt;
  }

  // Latest producer first: its own waits need not be repeated.
  MaybeError joinProducers(uint32_t f) {
    std::map<uint32_t, Scope, std::greater<>> producers;  // the scope that its widest read needs
    for (BufferId buffer : family(f).reads) {
      if (buffer.none()) continue;
      if (const auto it = writers_.find({family(f).entry, buffer}); it != writers_.end()) {
        if (it->second == f)
          return errorAt(family(f),
                         fmt::format("'{}' reads '{}', which it writes", family(f).name, bufferName(buffer)));
        Scope& scope = producers[it->second];
        scope = std::max(scope, scopeToRead(kind(f), program_.at(buffer).shape[0].extent));
      } else if (program_.at(buffer).role == Role::kTemp) {
        return errorAt(family(f), fmt::format("'{}' reads '{}', which no family before it writes",
                                              family(f).name, bufferName(buffer)));
      }
    }
    for (const auto& [producer, scope] : producers)
      if (auto error = join(f, producer, scope)) return error;
    if (family(f).waits.size() > kMaxLinks)
      return errorAt(family(f), fmt::format("'{}' would wait for {} events, expected at most {}",
                                            family(f).name, family(f).waits.size(), kMaxLinks));
    return std::nullopt;
  }

  MaybeError join(uint32_t f, uint32_t producer, Scope needed) {
    const std::vector<Scope> covered = computeCoverageRow(program_, table_, kind(f), family(f).waits);
    if (covered[producer] >= needed) return std::nullopt;
    std::optional<EventArray> event =
        eventBetween(program_, family(producer), kind(producer), waitingSpace(producer, kind(f)));
    if (!event)
      return makeError(
          f,
          fmt::format("'{}' reads what '{}' writes, but no event leads from its space to this one",
                      family(f).name, family(producer).name),
          producer, "the producer is here");
    family(f).waits.push_back(addEvent(producer, std::move(*event)));
    return std::nullopt;
  }

  // Returns the producer's event in that space; makes it on first use.
  EventId addEvent(uint32_t producer, EventArray event) {
    std::vector<EventId>& signals = family(producer).signals;
    for (EventId id : signals)
      if (program_.at(id).space == event.space) return id;
    for (const EventArray& other : program_.events)
      if (other.entry == event.entry && other.name == event.name) {
        event.name = family(producer).name + "." + event.name;
        break;
      }
    const EventId id{static_cast<uint32_t>(program_.events.size())};
    program_.events.push_back(std::move(event));
    signals.push_back(id);
    return id;
  }

  MaybeError checkSignals(uint32_t f) const {
    const size_t count = family(f).signals.size();
    if (count > kMaxLinks)
      return errorAt(family(f), fmt::format("'{}' would signal {} events, expected at most {}",
                                            family(f).name, count, kMaxLinks));
    if (isRemote(kind(f)) && count == 0)
      return errorAt(family(f),
                     fmt::format("nothing reads what '{}' sends to other ranks, so no task waits for it",
                                 family(f).name));
    return std::nullopt;
  }

  TaskProgram program_;
  CoverageTable table_;
  std::map<std::pair<EntryId, BufferId>, uint32_t> writers_;
  std::vector<uint32_t> readers_;  // by FamilyId, bits by SpaceKind
};

}  // namespace

Expected<TaskProgram> insertEvents(TaskProgram program) {
  if (!program.events.empty()) return Error{reportLine("", "error", "the program has events already")};
  return EventPlanner(std::move(program)).run();
}

}  // namespace sluice
