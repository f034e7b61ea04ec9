#include "compiler/analysis/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace sluice {
namespace {

constexpr size_t kMaxSync = 2;  // waits, and signals, of a task record

// What an event between two spaces looks like; the rules of docs/SCHEDULE.md.
std::optional<EventArray> eventBetween(const Family& producer, SpaceKind from, SpaceKind to) {
  EventArray event;
  event.entry = producer.entry;
  if (from == SpaceKind::kSends && to == SpaceKind::kRows) {
    event.name = "rows_arrived";
    event.space = EventSpace::kRows;
    event.rule = ThresholdRule::kRowsOfSlot;
  } else if (from == SpaceKind::kSends && to == SpaceKind::kExperts) {
    event.name = "expert_rows";
    event.space = EventSpace::kExperts;
    event.rule = ThresholdRule::kRowsOfExpert;
  } else if (from == SpaceKind::kReturns && to == SpaceKind::kTokens) {
    event.name = "returned";
    event.space = EventSpace::kOne;
    event.rule = ThresholdRule::kValidPairs;
  } else if (from == SpaceKind::kRows && (to == SpaceKind::kRows || to == SpaceKind::kReturns)) {
    event.name = producer.name + "_done";
    event.space = EventSpace::kRows;
    event.factor = producer.tiles;
  } else if (from == SpaceKind::kRows && to == SpaceKind::kExperts) {
    event.name = "expert_" + producer.name;
    event.space = EventSpace::kExperts;
    event.rule = ThresholdRule::kSlotsOfExpert;
    event.factor = producer.tiles;
  } else {
    return std::nullopt;
  }
  event.remote = from == SpaceKind::kSends || from == SpaceKind::kReturns;
  event.unit = event.remote ? EventUnit::kRows : EventUnit::kTasks;
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
    for (uint32_t f = 0; f < draft_.sync.size(); ++f) {
      if (auto finding = findWriters(f)) return *finding;
      if (auto finding = joinProducers(f)) return *finding;
      table_.push_back(coverageOf(draft_, table_, draft_.sync[f].waits));
    }
    for (uint32_t f = 0; f < draft_.sync.size(); ++f)
      if (auto finding = checkSignals(f)) return *finding;
    return EventPlan{std::move(draft_.program.events), std::move(draft_.sync)};
  }

 private:
  const Family& family(uint32_t f) const { return draft_.program.families[f]; }
  SpaceKind kind(uint32_t f) const { return draft_.program.at(family(f).space).kind; }
  const std::string& bufferName(BufferId b) const { return draft_.program.at(b).name; }

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
    std::vector<uint32_t> producers;
    for (BufferId buffer : family(f).reads) {
      if (buffer.none()) continue;
      if (const auto it = writers_.find({family(f).entry, buffer}); it != writers_.end()) {
        if (it->second == f)
          return Finding{f,
                         fmt::format("'{}' reads '{}', which it writes", family(f).name, bufferName(buffer))};
        producers.push_back(it->second);
      } else if (draft_.program.at(buffer).role == Role::kTemp) {
        return Finding{f, fmt::format("'{}' reads '{}', which no family before it writes", family(f).name,
                                      bufferName(buffer))};
      }
    }
    std::sort(producers.rbegin(), producers.rend());
    producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
    for (uint32_t producer : producers)
      if (auto finding = join(f, producer)) return finding;
    if (draft_.sync[f].waits.size() > kMaxSync)
      return Finding{f, fmt::format("'{}' would wait for {} events, expected at most {}", family(f).name,
                                    draft_.sync[f].waits.size(), kMaxSync)};
    return std::nullopt;
  }

  std::optional<Finding> join(uint32_t f, uint32_t producer) {
    const std::vector<Scope> covered = coverageOf(draft_, table_, draft_.sync[f].waits);
    if (covered[producer] >= scopeNeeded(kind(producer), kind(f))) return std::nullopt;
    std::optional<EventArray> event = eventBetween(family(producer), kind(producer), kind(f));
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
};

}  // namespace

Scope scopeNeeded(SpaceKind producer, SpaceKind consumer) {
  if (producer == SpaceKind::kReturns || consumer == SpaceKind::kTokens) return Scope::kAll;
  if (consumer == SpaceKind::kExperts) return Scope::kExpert;
  return Scope::kSlot;
}

Analyzed<EventPlan> planEvents(const TaskProgram& program) { return Planner(program).run(); }

}  // namespace sluice
