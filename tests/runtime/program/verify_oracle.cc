#include "tests/runtime/program/verify_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "tests/runtime/program/verify_oracle_routing.h"

namespace sluice {
namespace {

// One seat of a lane at one rank: where it stands.
struct Head {
  int rank;
  const Lane* lane;
  int core;
  int window = 0;
  size_t position = 0;
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
        return static_cast<int64_t>(rank.pairs.size());
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
    regions_.resize(p_.ranks);
    bound_.resize(p_.ranks);
    for (int r = 0; r < p_.ranks; ++r) {
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
    const int64_t from = index * (strided ? p_.at(buffer.region).stride : rowBytes(buffer)) + begin;
    if (from < 0 || bytes < 0 || from + bytes > static_cast<int64_t>(memory.size()))
      return wrong("{} accesses '{}' out of bounds", task_, buffer.name);
    for (int64_t i = from; i < from + bytes; ++i) {
      if (write && memory[i] == id.value + 1) return wrong("{} writes '{}' again", task_, buffer.name);
      if (!write && memory[i] != id.value + 1)
        return wrong("{} reads '{}' where it is not written", task_, buffer.name);
      memory[i] = id.value + 1;
    }
  }
  void read(BufferId id, int64_t index, int64_t begin, int64_t bytes) {
    if (id) touch(rank_, id, index, begin, bytes, false);
  }
  void write(int rank, BufferId id, int64_t index, int64_t begin, int64_t bytes) {
    if (id && remaining_[rank] == 0) wrong("{} writes to rank {}, which has finished", task_, rank);
    if (id) touch(rank, id, index, begin, bytes, true);
  }

  // --- tasks -------------------------------------------------------------------------------------------

  const OracleRank& here() const { return (*routing_)[rank_]; }

  int live(SpaceId id, const OracleRank& rank) const {
    const Space& space = p_.at(id);
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
        return p_.expertsPerRank();
      case SpaceKind::kOnce:
        return 1;
    }
    return 0;
  }

  int tokenSlots(const OracleRank& rank) const {
    for (uint32_t i = 0; i < p_.spaces.size(); ++i)
      if (p_.spaces[i].kind == SpaceKind::kTokens) return live(SpaceId{i}, rank);
    return 0;
  }

  void runPiece(const Family& f, const OraclePiece& piece) {
    const bool send = f.op == OpKind::kDispatch;
    for (int i = 0; i < piece.rows; ++i) {
      const OraclePair& pair = (*routing_)[piece.from].pairs[piece.pair + i];
      if (send) {
        read(f.reads[0], pair.token, 0, f.tiling.n * 2);
        read(f.reads[1], pair.token, pair.k * 4, 4);
      } else {
        read(f.reads[0], piece.row + i, 0, f.tiling.n * 2);
        read(f.reads[1], piece.row + i, 0, 4);
      }
      const int to = send ? piece.to : piece.from;
      const int64_t index = send ? piece.row + i : piece.pair + i;
      write(to, f.writes[0], index, 0, f.tiling.n * 2);
      write(to, f.writes[1], index, 0, 4);
    }
  }

  void runRows(const Family& f, const OracleSlot& slot, int tile) {
    const int64_t n = f.tiling.n, k = f.tiling.k;
    const int64_t first = int64_t{tile} * f.tiling.tileN,
                  columns = std::min<int64_t>(n - first, f.tiling.tileN);
    if (f.op == OpKind::kGmm) read(f.reads[1], slot.expert, 0, n * k * 2);
    for (int row = slot.row; row < slot.row + slot.rows; ++row) {
      if (f.op == OpKind::kGmm) {
        read(f.reads[0], row, 0, k * 2);
        write(rank_, f.writes[0], row, first * 2, columns * 2);
      } else if (f.op == OpKind::kActivation) {
        read(f.reads[0], row, 0, n * 4);
        write(rank_, f.writes[0], row, 0, n * 2);
      } else {
        read(f.reads[0], row, 0, n * 2);
        read(f.reads[1], row, 0, n * 4);
        read(f.reads[2], row, 0, 4);
        write(rank_, f.writes[0], row, 0, n * 4);
        write(rank_, f.writes[1], row, 0, 4);
      }
    }
  }

  void runExpert(const Family& f, const OracleSlot& expert, int tile) {
    const Tiling& t = f.tiling;
    const int64_t across = (t.n + t.tileN - 1) / t.tileN;
    const int64_t m = tile / across * t.tileM, n = tile % across * t.tileN;
    const int64_t rows = std::min<int64_t>(t.m - m, t.tileM), columns = std::min<int64_t>(t.n - n, t.tileN);
    for (int row = expert.row; row < expert.row + expert.rows; ++row) {
      read(f.reads[0], row, m * 2, rows * 2);
      read(f.reads[1], row, n * 2, columns * 2);
      read(f.reads[2], row, 0, 4);
    }
    const int64_t size = dtypeBytes(p_.at(f.writes[0]).type);
    for (int64_t i = m; i < m + rows; ++i)
      write(rank_, f.writes[0], expert.expert, (i * t.n + n) * size, columns * size);
  }

  void runTokens(const Family& f, int slot) {
    const int size = p_.at(f.space).slotSize;
    const int begin = slot * size, end = std::min(begin + size, here().tokens);
    const auto& pairs = here().pairs;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].token < begin || pairs[i].token >= end) continue;
      read(f.reads[0], static_cast<int64_t>(i), 0, f.tiling.n * 2);
      read(f.reads[2], static_cast<int64_t>(i), 0, 4);
    }
    for (int token = begin; token < end; ++token) {
      read(f.reads[1], token, 0, f.tiling.k * 4);
      write(rank_, f.writes[0], token, 0, f.tiling.n * 2);
      write(rank_, f.writes[1], token, 0, f.tiling.k * 4);
    }
  }

  void runTask(const Family& f, int slot, int tile) {
    switch (p_.at(f.space).kind) {
      case SpaceKind::kTokens:
        return runTokens(f, slot);
      case SpaceKind::kRows:
        return runRows(f, here().slots[slot], tile);
      case SpaceKind::kSends:
        return runPiece(f, here().sends[slot]);
      case SpaceKind::kReturns:
        return runPiece(f, here().returns[slot]);
      case SpaceKind::kExperts:
        return runExpert(f, here().experts[slot], tile);
      case SpaceKind::kOnce:
        return wrong("family '{}' is of a space the oracle does not run", f.name);
    }
  }

  // --- events ------------------------------------------------------------------------------------------

  // The counter that a task means, or -1. A piece's slot and expert are of the receiver: a sender has them
  // for remote events only, and a receiver for its own.
  int indexOf(SpaceKind kind, int slot, const EventArray& event) const {
    const bool pieceSide = (kind == SpaceKind::kSends) == event.remote;
    if (event.space == EventSpace::kOne) return 0;
    if (event.space == EventSpace::kTokens) return kind == SpaceKind::kTokens ? slot : -1;
    const bool rows = event.space == EventSpace::kRows;
    switch (kind) {
      case SpaceKind::kRows:
        return rows ? slot : here().slots[slot].expert;
      case SpaceKind::kExperts:
        return rows ? -1 : slot;
      case SpaceKind::kSends:
        return pieceSide ? rows ? here().sends[slot].slot : here().sends[slot].expert : -1;
      case SpaceKind::kReturns:
        return rows ? here().returns[slot].slot : here().returns[slot].expert;
      case SpaceKind::kTokens:
      case SpaceKind::kOnce:
        return -1;
    }
    return -1;
  }

  int64_t threshold(const OracleRank& rank, const EventArray& event, int index) {
    switch (event.rule) {
      case ThresholdRule::kConstant:
        return event.factor;
      case ThresholdRule::kRowsOfSlot:
        if (event.space == EventSpace::kRows) return rank.slots[index].rows;
        break;
      case ThresholdRule::kRowsOfExpert:
        if (event.space == EventSpace::kExperts) return rank.experts[index].rows;
        break;
      case ThresholdRule::kSlotsOfExpert:
        if (event.space == EventSpace::kExperts)
          return event.factor * std::count_if(rank.slots.begin(), rank.slots.end(),
                                              [&](const OracleSlot& s) { return s.expert == index; });
        break;
      case ThresholdRule::kValidPairs:
        if (event.space == EventSpace::kOne) return static_cast<int64_t>(rank.pairs.size());
        break;
      case ThresholdRule::kSlotsOfTokens:
        if (event.space == EventSpace::kOne) return event.factor * tokenSlots(rank);
        break;
    }
    wrong("event '{}' has no such threshold", event.name);
    return 0;
  }

  size_t countersOf(const OracleRank& rank, EventSpace space) const {
    switch (space) {
      case EventSpace::kOne:
        return 1;
      case EventSpace::kRows:
        return rank.slots.size();
      case EventSpace::kExperts:
        return rank.experts.size();
      case EventSpace::kTokens:
        break;
    }
    for (uint32_t s = 0; s < p_.spaces.size(); ++s)
      if (p_.spaces[s].kind == SpaceKind::kTokens) return live(SpaceId{s}, rank);
    return 0;
  }

  bool reached(SpaceKind kind, int slot, EventId id) {
    if (!id) return true;
    const EventArray& event = p_.at(id);
    EventArray local = event;
    local.remote = false;  // a wait is for a counter of this rank
    const int index = indexOf(kind, slot, local);
    if (index < 0) return wrong("{} has no index to wait for '{}'", task_, event.name), false;
    return counters_[rank_][id.value][index] >= threshold(here(), event, index);
  }

  void signal(SpaceKind kind, int slot, EventId id) {
    if (!id) return;
    const EventArray& event = p_.at(id);
    const bool piece = kind == SpaceKind::kSends || kind == SpaceKind::kReturns;
    const int index = indexOf(kind, slot, event);
    const bool backwards = kind == SpaceKind::kReturns && event.remote && event.space != EventSpace::kOne;
    if (index < 0 || (event.remote && !piece) || backwards || (event.unit == EventUnit::kRows && !piece))
      return wrong("{} cannot signal '{}'", task_, event.name);
    int to = rank_, rows = 1;
    if (piece) {
      const OraclePiece& own = kind == SpaceKind::kSends ? here().sends[slot] : here().returns[slot];
      if (event.remote) to = kind == SpaceKind::kSends ? own.to : own.from;
      if (event.unit == EventUnit::kRows) rows = own.rows;
    }
    if (remaining_[to] == 0) wrong("{} signals rank {}, which has finished", task_, to);
    counters_[to][id.value][index] += rows;
  }

  // --- an entry ----------------------------------------------------------------------------------------

  void begin(EntryId entry) {
    const EntryId by = p_.at(entry).expertIds ? entry : p_.at(entry).routing;
    routing_ = &routings_[by.value];
    remaining_.assign(p_.ranks, 0);
    counters_.assign(p_.ranks, std::vector<std::vector<int64_t>>(p_.events.size()));
    for (int r = 0; r < p_.ranks; ++r) {
      for (size_t i = 0; i < p_.regions.size(); ++i)
        if (!p_.regions[i].saved) std::fill(regions_[r][i].begin(), regions_[r][i].end(), 0);
      for (size_t e = 0; e < p_.events.size(); ++e)
        counters_[r][e].assign(countersOf((*routing_)[r], p_.events[e].space), 0);
    }
    heads_.clear();
    for (int r = 0; r < p_.ranks; ++r)
      for (const Lane& lane : p_.lanes)
        if (lane.entry == entry)
          for (int c = 0; c < p_.cores; ++c) heads_.push_back({r, &lane, c});
    for (const Head& head : heads_) {
      Head walk = head;
      for (int slot = 0; next(walk, slot); ++walk.position) ++remaining_[head.rank];
    }
  }

  // Moves on to the next record whose slot is live, into later windows too; null at the end.
  const TaskRecord* next(Head& head, int& slot) const {
    const int window = p_.at(head.lane->space).window;
    const int count = live(head.lane->space, (*routing_)[head.rank]);
    for (; int64_t{head.window} * window < count; ++head.window, head.position = 0) {
      const int64_t shifted = head.core - int64_t{head.window} * head.lane->rotation;
      const auto& seat = head.lane->seats[((shifted % p_.cores) + p_.cores) % p_.cores];
      for (; head.position < seat.size(); ++head.position) {
        slot = head.window * window + static_cast<int>(seat[head.position].slot);
        if (slot < count) return &seat[head.position];
      }
    }
    return nullptr;
  }

  bool ready(Head& head, int& slot) {
    const TaskRecord* record = next(head, slot);
    if (record == nullptr) return false;
    rank_ = head.rank;
    task_ = p_.at(record->family).name;
    if (slot >= live(p_.at(record->family).space, here())) return wrong("{} has no such slot", task_), false;
    const SpaceKind kind = p_.at(p_.at(record->family).space).kind;
    return std::all_of(record->waits.begin(), record->waits.end(),
                       [&](EventId id) { return reached(kind, slot, id); });
  }

  void step(Head& head) {
    int slot = 0;
    const TaskRecord* record = next(head, slot);
    const Family& family = p_.at(record->family);
    rank_ = head.rank;
    task_ = fmt::format("{}[{},{}] of rank {}", family.name, slot, record->tile, rank_);
    runTask(family, slot, static_cast<int>(record->tile));
    for (EventId id : record->signals) signal(p_.at(family.space).kind, slot, id);
    ++head.position;
    --remaining_[head.rank];
  }

  void runEntry(EntryId entry) {
    begin(entry);
    std::vector<FamilyId> families;
    for (uint32_t f = 0; f < p_.families.size(); ++f)
      if (p_.families[f].entry == entry) families.push_back(FamilyId{f});
    const FamilyId held = families[hold_ % families.size()];
    const int heldRank = static_cast<int>(random_() % (p_.ranks + 1)),
              heldCore = static_cast<int>(random_() % (p_.cores + 2));
    while (wrong_.empty()) {
      std::vector<Head*> free, last;
      bool left = false;
      for (Head& head : heads_) {
        int slot = 0;
        const bool runs = ready(head, slot);
        const TaskRecord* record = next(head, slot);
        left = left || record != nullptr;
        if (!runs) continue;
        const bool hold = record->family == held && (heldRank == p_.ranks || heldRank == head.rank) &&
                          (heldCore >= p_.cores || heldCore == head.core);
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
    for (int r = 0; r < p_.ranks; ++r) {
      for (uint32_t e = 0; e < p_.events.size(); ++e)
        for (size_t i = 0; p_.events[e].entry == entry && i < counters_[r][e].size(); ++i)
          if (counters_[r][e][i] != threshold((*routing_)[r], p_.events[e], static_cast<int>(i)))
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
    rank_ = rank;
    task_ = "the caller";
    for (int64_t i = 0; i < count; ++i) read(id, i, 0, rowBytes(buffer));
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
