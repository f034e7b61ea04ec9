// Builds a SmallModel from the tables, with the parts of the oracle of verify().
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "runtime/program/op_table.h"
#include "tests/proof/small_model.h"
#include "tests/runtime/program/verify_oracle_accesses.h"
#include "tests/runtime/program/verify_oracle_events.h"

namespace sluice {

class SmallModelBuilder {
 public:
  SmallModelBuilder(SmallModel& model, const TaskProgram& program, EntryId entry,
                    const std::vector<OracleRank>& routing)
      : model_(model), program_(program), entry_(entry), routing_(routing) {}

  void build() {
    model_.ranks_ = program_.mesh.peers();
    addCounters();
    addSeats();
    for (int r = 0; r < program_.mesh.peers(); ++r) addOutputs(r);
    addPlaces();
  }

 private:
  // A byte: of a region, or of a buffer of the caller (then the region is none).
  using Byte = std::tuple<int, uint32_t, uint32_t, int64_t>;  // rank, region, buffer, byte
  struct Touch {
    uint32_t buffer;
    int task;  // -1: the caller, after the entry
    bool write;
    friend auto operator<=>(const Touch&, const Touch&) = default;
  };

  template <class... Args>
  void wrong(fmt::format_string<Args...> format, Args&&... args) {
    if (model_.error_.empty()) model_.error_ = fmt::format(format, std::forward<Args>(args)...);
  }

  void addCounters() {
    for (int r = 0; r < program_.mesh.peers(); ++r) {
      for (uint32_t e = 0; e < program_.events.size(); ++e) {
        const EventArray& event = program_.events[e];
        first_[{r, e}] = static_cast<int>(model_.thresholds_.size());
        if (event.entry != entry_) continue;
        for (size_t i = 0; i < oracleCounters(program_, event.space, routing_[r]); ++i) {
          const auto threshold = oracleThreshold(program_, event, static_cast<int>(i), routing_[r]);
          if (!threshold) wrong("event '{}' has no such threshold", event.name);
          model_.thresholds_.push_back(threshold.value_or(0));
          model_.counterNames_.push_back(fmt::format("{}[{}] of rank {}", event.name, i, r));
        }
      }
    }
  }

  void addSeats() {
    for (int r = 0; r < program_.mesh.peers(); ++r) {
      for (const Lane& lane : program_.lanes) {
        if (lane.entry != entry_) continue;
        for (int core = 0; core < static_cast<int>(lane.seats.size()); ++core) {
          std::vector<int> seat;
          for (const OracleTask& task : oracleSeat(program_, lane, core, routing_[r])) {
            seat.push_back(static_cast<int>(model_.tasks_.size()));
            addTask(r, task);
          }
          if (!seat.empty()) model_.seats_.push_back(std::move(seat));
        }
      }
    }
  }

  void addTask(int rank, const OracleTask& task) {
    const Family& family = program_.at(task.family);
    const SpaceKind kind = program_.at(family.space).kind;
    const auto id = static_cast<int>(model_.tasks_.size());
    SmallModel::Task& own = model_.tasks_.emplace_back();
    own.rank = rank;
    own.name = fmt::format("{}[{},{}] of rank {}", family.name, task.slot, task.tile, rank);
    if (task.slot >= oracleSlots(program_, family.space, routing_[rank]))
      return wrong("{} has no such slot", own.name);
    std::set<int> peers;
    for (EventId id : family.waits) {
      if (program_.at(id).entry != entry_) return wrong("{} waits for an event of another entry", own.name);
      const int index = oracleWaitIndex(kind, task.slot, program_.at(id), routing_[rank]);
      if (index < 0) return wrong("{} has no index to wait for '{}'", own.name, program_.at(id).name);
      own.waits.push_back(first_[{rank, id.value}] + index);
    }
    for (EventId id : family.signals) {
      if (program_.at(id).entry != entry_) return wrong("{} signals an event of another entry", own.name);
      const auto signal = oracleSignal(kind, task.slot, program_.at(id), routing_[rank], rank);
      if (!signal) return wrong("{} cannot signal '{}'", own.name, program_.at(id).name);
      own.signals.emplace_back(first_[{signal->rank, id.value}] + signal->index, signal->count);
      if (signal->rank != rank) peers.insert(signal->rank);
    }
    forEachAccess(program_, routing_, rank, family, task.slot, task.tile, [&](const OracleAccess& a) {
      if (a.rank != rank) peers.insert(a.rank);
      touch(a, id);
    });
    own.peers.assign(peers.begin(), peers.end());
  }

  // What the caller looks at afterwards.
  void addOutputs(int rank) {
    std::set<BufferId> written;
    for (const Family& family : program_.families)
      if (family.entry == entry_)
        for (BufferId id : family.writes)
          if (id && program_.at(id).role == Role::kOutput) written.insert(id);
    for (BufferId id : written)
      for (int64_t i = 0; i < elements(rank, program_.at(id)); ++i)
        touch({rank, id, i, 0, elementBytes(program_.at(id)), false}, -1);
  }

  int64_t elements(int rank, const Buffer& buffer) const {
    switch (buffer.shape[0].extent) {
      case Extent::kFixed:
        return buffer.shape[0].size;
      case Extent::kTokens:
        return routing_[rank].tokens;
      case Extent::kRows:
        return routing_[rank].rows;
      case Extent::kPairs:
        return routing_[rank].returned;
      case Extent::kExperts:
        return static_cast<int64_t>(routing_[rank].experts.size());
    }
    return 0;
  }

  static int64_t elementBytes(const Buffer& buffer) {
    int64_t bytes = dtypeBytes(buffer.type);
    for (size_t i = 1; i < buffer.shape.size(); ++i) bytes *= buffer.shape[i].size;
    return bytes;
  }

  void touch(const OracleAccess& a, int task) {
    const Buffer& buffer = program_.at(a.buffer);
    const bool fixed = buffer.shape[0].extent == Extent::kFixed;
    const bool strided = buffer.region && !fixed;
    const int64_t count = elements(a.rank, buffer), all = elementBytes(buffer);
    const bool inside = fixed ? a.index * all + a.begin + a.bytes <= count * all
                              : a.index < count && a.begin + a.bytes <= all;
    if (a.begin < 0 || a.bytes < 0 || a.index < 0 || !inside)
      return wrong("task {} accesses '{}' out of bounds", task, buffer.name);
    const int64_t from =
        buffer.offset + a.index * (strided ? program_.at(buffer.region).stride : all) + a.begin;
    const uint32_t own = buffer.region ? 0 : a.buffer.value;
    for (int64_t byte = from; byte < from + a.bytes; ++byte)
      bytes_[{a.rank, buffer.region.value, own, byte}].push_back({a.buffer.value, task, a.write});
  }

  // Bytes with the same touches become one place.
  void addPlaces() {
    std::map<std::vector<Touch>, int64_t> kinds;
    for (auto& [byte, touches] : bytes_) {
      std::sort(touches.begin(), touches.end());
      ++kinds[touches];
    }
    for (const auto& [touches, count] : kinds) addPlace(touches);
  }

  void addPlace(const std::vector<Touch>& touches) {
    const auto place = static_cast<int>(model_.places_.size());
    SmallModel::Place& own = model_.places_.emplace_back();
    for (const Touch& touch : touches) {
      const Buffer& buffer = program_.buffers[touch.buffer];
      if (own.uses.empty() || own.uses.back().buffer.value != touch.buffer)
        own.uses.push_back(
            {BufferId{touch.buffer}, -1, {}, buffer.role == Role::kOutput || buffer.role == Role::kSaved});
      const auto number = static_cast<int>(own.uses.size()) - 1;
      SmallModel::Place::Use& use = own.uses.back();
      if (touch.task < 0) continue;
      SmallModel::Task& task = model_.tasks_[touch.task];
      auto& list = touch.write ? task.writes : task.reads;
      if (touch.write && use.writer >= 0) wrong("{} writes '{}' again", task.name, buffer.name);
      if (touch.write) use.writer = touch.task;
      if (list.empty() || list.back() != std::pair(place, number)) list.emplace_back(place, number);
      if (use.users.empty() || use.users.back() != touch.task) use.users.push_back(touch.task);
    }
    for (const SmallModel::Place::Use& use : own.uses) checkUse(own, use);
  }

  void checkUse(const SmallModel::Place& place, const SmallModel::Place::Use& use) {
    const Buffer& buffer = program_.at(use.buffer);
    if (use.writer >= 0) return;
    const bool there =
        buffer.role == Role::kInput || (buffer.role == Role::kSaved && isFromBefore(use.buffer));
    if (!there) wrong("'{}' is read where it is never written", buffer.name);
    for (const SmallModel::Place::Use& other : place.uses)
      if (other.writer >= 0)
        wrong("'{}' is overwritten by '{}'", buffer.name, program_.at(other.buffer).name);
  }

  bool isFromBefore(BufferId buffer) const {
    return std::any_of(program_.families.begin(), program_.families.end(), [&](const Family& family) {
      return family.entry < entry_ &&
             std::find(family.writes.begin(), family.writes.end(), buffer) != family.writes.end();
    });
  }

  SmallModel& model_;
  const TaskProgram& program_;
  const EntryId entry_;
  const std::vector<OracleRank>& routing_;
  std::map<std::pair<int, uint32_t>, int> first_;  // counter of (rank, event)[0]
  std::map<Byte, std::vector<Touch>> bytes_;
};

SmallModel::SmallModel(const TaskProgram& program, EntryId entry, const std::vector<OracleRank>& routing) {
  SmallModelBuilder(*this, program, entry, routing).build();
}

}  // namespace sluice
