#include "tests/runtime/program/verify_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "tests/runtime/program/verify_oracle_accesses.h"
#include "tests/runtime/program/verify_oracle_events.h"
#include "tests/runtime/program/verify_oracle_routing.h"

namespace sluice {
namespace {

// One core's part of a lane at one rank, and how far it has come.
struct Head {
  int rank;
  int core;
  std::vector<OracleTask> tasks;
  size_t position = 0;

  bool atEnd() const { return position == tasks.size(); }
  const OracleTask& task() const { return tasks[position]; }
};

class Oracle {
 public:
  Oracle(const TaskProgram& program, uint64_t seed, uint32_t hold) : p_(program), random_(seed), hold_(hold) {
    for (size_t e = 0; e < p_.entries.size(); ++e) routings_.push_back(randomRouting(p_, random_));
    allocate();
  }

  std::string run() {
    for (uint32_t e = 0; e < p_.entries.size() && wrong_.empty(); ++e) runEntry(EntryId{e});
    return wrong_;
  }

 private:
  template <class... Args>
  void wrong(fmt::format_string<Args...> format, Args&&... args) {
    if (wrong_.empty()) wrong_ = fmt::format(format, std::forward<Args>(args)...);
  }

  // --- memory ------------------------------------------------------------------------------------------

  int64_t extent(const OracleRank& rank, Extent extent) const {
    switch (extent) {
      case Extent::kFixed:
        return 1;
      case Extent::kTokens:
        return rank.tokens;
      case Extent::kRows:
        return rank.rows;
      case Extent::kPairs:
        return rank.returned;
      case Extent::kExperts:
        return static_cast<int64_t>(rank.experts.size());
    }
    return 0;
  }

  static int64_t rowBytes(const Buffer& buffer) {
    int64_t bytes = dtypeBytes(buffer.type);
    for (size_t i = 1; i < buffer.shape.size(); ++i) bytes *= buffer.shape[i].size;
    return bytes;
  }

  // All entries' sizes fit: what is too large for one of them shows as bytes that nobody wrote.
  void allocate() {
    regions_.resize(p_.mesh.peers());
    bound_.resize(p_.mesh.peers());
    for (int r = 0; r < p_.mesh.peers(); ++r) {
      const auto largest = [&](Extent which) {
        int64_t most = 0;
        for (const auto& routing : routings_) most = std::max(most, extent(routing[r], which));
        return most;
      };
      for (const Region& region : p_.regions)
        regions_[r].emplace_back(largest(region.extent) * region.stride);
      for (uint32_t b = 0; b < p_.buffers.size(); ++b) {
        const Buffer& buffer = p_.buffers[b];
        const Dim& first = buffer.shape[0];
        const int64_t count = first.extent == Extent::kFixed ? first.size : largest(first.extent);
        bound_[r].emplace_back(buffer.region ? 0 : count * rowBytes(buffer));
        if (buffer.role == Role::kInput) std::fill(bound_[r][b].begin(), bound_[r][b].end(), b + 1);
      }
    }
  }

  // `bytes` bytes of element `index` of the buffer from byte `begin` on.
  void touch(int rank, BufferId id, int64_t index, int64_t begin, int64_t bytes, bool write) {
    const Buffer& buffer = p_.at(id);
    std::vector<uint32_t>& memory =
        buffer.region ? regions_[rank][buffer.region.value] : bound_[rank][id.value];
    const bool strided = buffer.region && buffer.shape[0].extent != Extent::kFixed;
    const int64_t from =
        buffer.offset + index * (strided ? p_.at(buffer.region).stride : rowBytes(buffer)) + begin;
    if (from < 0 || bytes < 0 || from + bytes > static_cast<int64_t>(memory.size()))
      return wrong("{} accesses '{}' out of bounds", task_, buffer.name);
    const std::span<uint32_t> touched(memory.data() + from, static_cast<size_t>(bytes));
    const uint32_t mark = id.value + 1;
    if (write) {
      if (std::ranges::find(touched, mark) != touched.end())
        return wrong("{} writes '{}' again", task_, buffer.name);
      std::ranges::fill(touched, mark);
    } else if (!touched.empty() &&  // each equals the next, for memcmp() is fast
               (touched[0] != mark ||
                std::memcmp(&touched[0], &touched[0] + 1, touched.size_bytes() - 4) != 0)) {
      return wrong("{} reads '{}' where it is not written", task_, buffer.name);
    }
  }

  void access(const OracleAccess& a) {
    if (a.write && remaining_[a.rank] == 0) wrong("{} writes to rank {}, which has finished", task_, a.rank);
    touch(a.rank, a.buffer, a.index, a.begin, a.bytes, a.write);
  }

  // --- tasks and events ----------------------------------------------------------------------------------

  const OracleRank& here() const { return (*routing_)[rank_]; }

  int64_t threshold(int rank, EventId id, int index) {
    const auto value = oracleThreshold(p_, p_.at(id), index, (*routing_)[rank]);
    if (!value) wrong("event '{}' has no such threshold", p_.at(id).name);
    return value.value_or(0);
  }

  bool isReached(SpaceKind kind, int slot, EventId id) {
    const int index = oracleWaitIndex(kind, slot, p_.at(id), here());
    if (index < 0) return wrong("{} has no index to wait for '{}'", task_, p_.at(id).name), false;
    return counters_[rank_][id.value][index] >= threshold(rank_, id, index);
  }

  void signal(SpaceKind kind, int slot, EventId id) {
    const auto signal = oracleSignal(kind, slot, p_.at(id), here(), rank_);
    if (!signal) return wrong("{} cannot signal '{}'", task_, p_.at(id).name);
    if (remaining_[signal->rank] == 0) wrong("{} signals rank {}, which has finished", task_, signal->rank);
    counters_[signal->rank][id.value][signal->index] += signal->count;
  }

  bool isReady(const Head& head) {
    if (head.atEnd()) return false;
    const OracleTask& task = head.task();
    rank_ = head.rank;
    task_ = p_.at(task.family).name;
    const SpaceId space = p_.at(task.family).space;
    if (task.slot >= oracleSlots(p_, space, here())) return wrong("{} has no such slot", task_), false;
    const std::vector<EventId>& waits = p_.at(task.family).waits;
    return std::all_of(waits.begin(), waits.end(),
                       [&](EventId id) { return isReached(p_.at(space).kind, task.slot, id); });
  }

  void step(Head& head) {
    const OracleTask task = head.task();
    const Family& family = p_.at(task.family);
    rank_ = head.rank;
    task_ = fmt::format("{}[{},{}] of rank {}", family.name, task.slot, task.tile, rank_);
    forEachAccess(p_, *routing_, rank_, family, task.slot, task.tile,
                  [this](const OracleAccess& a) { access(a); });
    for (EventId id : family.signals) signal(p_.at(family.space).kind, task.slot, id);
    ++head.position;
    --remaining_[head.rank];
  }

  // --- an entry ----------------------------------------------------------------------------------------

  void begin(EntryId entry) {
    const EntryId by = p_.at(entry).routes() ? entry : p_.at(entry).routing;
    routing_ = &routings_[by.value];
    remaining_.assign(p_.mesh.peers(), 0);
    counters_.assign(p_.mesh.peers(), std::vector<std::vector<int64_t>>(p_.events.size()));
    heads_.clear();
    for (int r = 0; r < p_.mesh.peers(); ++r) {
      for (size_t i = 0; i < p_.regions.size(); ++i)
        if (!p_.regions[i].saved) std::fill(regions_[r][i].begin(), regions_[r][i].end(), 0);
      for (size_t e = 0; e < p_.events.size(); ++e)
        counters_[r][e].assign(oracleCounters(p_, p_.events[e].space, (*routing_)[r]), 0);
      for (const Lane& lane : p_.lanes) {
        for (int c = 0; c < static_cast<int>(lane.seats.size()) && lane.entry == entry; ++c) {
          heads_.push_back({r, lane.firstCore + c, oracleSeat(p_, lane, c, (*routing_)[r])});
          remaining_[r] += static_cast<int64_t>(heads_.back().tasks.size());
        }
      }
    }
  }

  void runEntry(EntryId entry) {
    begin(entry);
    std::vector<FamilyId> families;
    for (uint32_t f = 0; f < p_.families.size(); ++f)
      if (p_.families[f].entry == entry) families.push_back(FamilyId{f});
    const FamilyId held = families[hold_ % families.size()];
    const int heldRank = static_cast<int>(random_() % (p_.mesh.peers() + 1)),
              cores = p_.coreCount(p_.at(held).core), heldCore = static_cast<int>(random_() % (cores + 2));
    while (wrong_.empty()) {
      std::vector<Head*> free, last;
      bool left = false;
      for (Head& head : heads_) {
        left = left || !head.atEnd();
        if (!isReady(head)) continue;
        const bool hold = head.task().family == held &&
                          (heldRank == p_.mesh.peers() || heldRank == head.rank) &&
                          (heldCore >= cores || heldCore == head.core);
        (hold ? last : free).push_back(&head);
      }
      if (!left) break;
      const auto& choice = free.empty() ? last : free;
      if (choice.empty()) return wrong("no task of entry '{}' can run", p_.at(entry).name);
      step(*choice[random_() % choice.size()]);
    }
    if (wrong_.empty()) finish(entry, families);
  }

  void finish(EntryId entry, const std::vector<FamilyId>& families) {
    for (int r = 0; r < p_.mesh.peers(); ++r) {
      for (uint32_t e = 0; e < p_.events.size(); ++e)
        for (size_t i = 0; p_.events[e].entry == entry && i < counters_[r][e].size(); ++i)
          if (counters_[r][e][i] != threshold(r, EventId{e}, static_cast<int>(i)))
            wrong("event '{}' ends away from its threshold", p_.events[e].name);
      for (FamilyId f : families)
        for (BufferId b : p_.at(f).writes)
          if (b && p_.at(b).role == Role::kOutput) checkWritten(r, b);
    }
  }

  void checkWritten(int rank, BufferId id) {
    const Buffer& buffer = p_.at(id);
    const Dim& first = buffer.shape[0];
    const int64_t count =
        first.extent == Extent::kFixed ? first.size : extent((*routing_)[rank], first.extent);
    task_ = "the caller";
    for (int64_t i = 0; i < count; ++i) touch(rank, id, i, 0, rowBytes(buffer), false);
  }

  const TaskProgram& p_;
  std::mt19937_64 random_;
  const uint32_t hold_;
  std::string wrong_;
  std::vector<std::vector<OracleRank>> routings_;            // by entry that routes
  std::vector<std::vector<std::vector<uint32_t>>> regions_;  // by rank, region, byte: buffer + 1, or 0
  std::vector<std::vector<std::vector<uint32_t>>> bound_;    // by rank, buffer, byte
  const std::vector<OracleRank>* routing_ = nullptr;
  std::vector<int64_t> remaining_;                           // tasks, by rank
  std::vector<std::vector<std::vector<int64_t>>> counters_;  // by rank, event, index
  std::vector<Head> heads_;
  int rank_ = 0;
  std::string task_;
};

}  // namespace

std::string runOracle(const TaskProgram& program, uint64_t seed, uint32_t hold) {
  return Oracle(program, seed, hold).run();
}

}  // namespace sluice
