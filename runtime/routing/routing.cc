#include "runtime/routing/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr int32_t kRowUnit = 16;  // rows of a matrix unit's tile

}  // namespace

// Derives the slots of any rank from the counts; its scratch memory is in the tables.
class RoutingBuilder {
 public:
  RoutingBuilder(const RoutingShape& shape, int32_t rank, const AllCounts& counts, RoutingTables& tables)
      : shape_(shape),
        deal_(shape.deal()),
        peers_(shape.mesh.peers()),
        rank_(rank),
        counts_(counts),
        tables_(tables) {}

  void build() {
    tables_.sends.clear();
    for (int32_t offset = 0; offset < peers_; ++offset) {
      const int32_t owner = (rank_ + offset) % peers_;
      orderSlots(owner);
      orderGroups(owner);
      appendSends(owner, rank_, tables_);
    }
    buildRest();
  }

  // The pieces that all ranks send to this one.
  void buildSendsOfAll(std::span<RoutingTables> all) {
    orderSlots(rank_);
    orderGroups(rank_);
    begins_.assign(static_cast<size_t>(deal_.of(rank_)), 0);
    for (int32_t source = 0; source < peers_; ++source)
      appendSends(rank_, source, all[static_cast<size_t>(source)]);
  }

  // All but the pieces that are sent, which are only sorted.
  void buildRest() {
    orderSends(shape_.mesh, rank_, tables_.sends);
    const int32_t local = deal_.of(rank_);
    tables_.returned = tables_.pairs * shape_.mesh.tp;
    tables_.rowsFrom.assign(peers_, 0);
    tables_.returnsFrom.assign(peers_, 0);
    for (int32_t peer = 0; peer < peers_; ++peer) {
      for (int32_t j = 0; j < local; ++j) tables_.rowsFrom[peer] += count(peer, rank_, j);
      const int32_t* const toPeer = counts_.of(rank_) + deal_.first(peer);
      tables_.returnsFrom[peer] = std::accumulate(toPeer, toPeer + deal_.of(peer), 0);
    }
    buildSlots();
    buildReturns();
  }

  // With the counts of the rank's own experts only.
  void buildReceived() {
    firstColumn_ = deal_.first(rank_);
    hasAllCounts_ = false;
    buildSlots();
    buildReturns();
  }

 private:
  struct SlotCut {
    int32_t slots = 0;
    int32_t length = 0;
  };

  // Rows of a local expert of `owner` that `source` sends there.
  int32_t count(int32_t source, int32_t owner, int32_t expert) const {
    if (!shape_.mesh.sends(source, owner)) return 0;
    return counts_.of(source)[deal_.first(owner) - firstColumn_ + expert];
  }

  int32_t countRows(int32_t owner, int32_t expert) const {
    int32_t rows = 0;
    for (int32_t source = 0; source < peers_; ++source) rows += count(source, owner, expert);
    return rows;
  }

  // The same for the owner whose slots were ordered last.
  int32_t rowsOfOrdered(int32_t expert) const { return tables_.rowScratch_[static_cast<size_t>(expert)]; }

  // Cuts rows into equal slots instead of full ones and a remainder.
  SlotCut cut(int32_t rows) const {
    if (rows == 0) return {};
    const int32_t slots = (rows + shape_.slotRows - 1) / shape_.slotRows;
    const int32_t even = (rows + slots - 1) / slots;
    const int32_t length = std::min(shape_.slotRows, (even + kRowUnit - 1) / kRowUnit * kRowUnit);
    return {(rows + length - 1) / length, length};
  }

  // Numbers the slots of `owner` in order of arrival; slotNumber(i) is then the number of the i-th slot in
  // storage order.
  void orderSlots(int32_t owner) {
    auto& order = tables_.orderScratch_;
    const int32_t local = deal_.of(owner);
    order.clear();
    tables_.rowScratch_.resize(static_cast<size_t>(local));
    for (int32_t expert = 0; expert < local; ++expert) {
      const int32_t rows = tables_.rowScratch_[static_cast<size_t>(expert)] = countRows(owner, expert);
      appendArrivals(owner, expert, cut(rows), order);
    }
    for (size_t index = 0; index < order.size(); ++index)
      order[index] = order[index] << 32 | static_cast<int64_t>(index);
    std::sort(order.begin(), order.end());
    if (shape_.ownLast) std::reverse(order.begin(), order.end());
    // order[number] -> numberOf[storage index], kept in the upper half of the scratch
    const size_t slots = order.size();
    order.resize(2 * slots);
    for (size_t number = 0; number < slots; ++number) order[slots + (order[number] & 0xffffffff)] = number;
  }

  int32_t slotNumber(int32_t storageIndex) const {
    const auto& order = tables_.orderScratch_;
    return static_cast<int32_t>(order[order.size() / 2 + storageIndex]);
  }

  int32_t countGroups(int32_t slots) const { return (slots + shape_.groupSlots - 1) / shape_.groupSlots; }

  // Groups the slots that orderSlots has ordered: the slots of an expert form as few groups as possible,
  // equal to within one slot; groups are numbered in the order of their last slots.
  void orderGroups(int32_t owner) {
    auto& index = tables_.groupIndex_;
    auto& number = tables_.groupNumber_;
    auto& left = tables_.groupLeft_;
    index.clear();
    left.clear();
    if (shape_.groupSlots == 0) return;
    for (int32_t expert = 0, local = deal_.of(owner); expert < local; ++expert) {
      const int32_t slots = cut(rowsOfOrdered(expert)).slots, groups = countGroups(slots);
      for (int32_t group = 0, slot = 0; group < groups; ++group) {
        const auto end = static_cast<int32_t>(int64_t{group + 1} * slots / groups);
        left.push_back(end - slot);
        for (; slot < end; ++slot) index.push_back(static_cast<int32_t>(left.size()) - 1);
      }
    }
    number.resize(left.size());
    const auto& order = tables_.orderScratch_;
    int32_t next = 0;
    for (size_t slot = 0; slot < order.size() / 2; ++slot) {
      const int32_t group = index[order[slot] & 0xffffffff];
      if (--left[group] == 0) number[group] = next++;
    }
  }

  // The group of the i-th slot in storage order; 0 if slots are not grouped.
  int32_t groupOf(int32_t storageIndex) const {
    return shape_.groupSlots == 0 ? 0 : tables_.groupNumber_[tables_.groupIndex_[storageIndex]];
  }

  // Appends the sort keys of an expert's slots, in storage order: 0 for own rows only, else 1 + (expert,
  // distance of the last source to send).
  void appendArrivals(int32_t owner, int32_t expert, const SlotCut& slotCut,
                      std::vector<int64_t>& keys) const {
    const size_t firstSlot = keys.size();
    keys.resize(firstSlot + static_cast<size_t>(slotCut.slots), 0);
    int32_t row = 0;
    for (int32_t source = 0; source < peers_; ++source) {
      const int32_t end = row + count(source, owner, expert);
      const int32_t distance = (owner - source + peers_) % peers_;
      const int64_t key = source == owner ? 0 : 1 + int64_t{expert} * peers_ + distance;
      for (; row < end; row = std::min(end, (row / slotCut.length + 1) * slotCut.length)) {
        int64_t& last = keys[firstSlot + static_cast<size_t>(row / slotCut.length)];
        last = std::max(last, key);
      }
    }
  }

  // First pair of `source` for the local expert of `owner`, as far as there are counts.
  int32_t pairBase(int32_t source, int32_t owner, int32_t expert = 0) const {
    const int32_t* const counts = counts_.of(source);
    return std::accumulate(counts, counts + deal_.first(owner) - firstColumn_ + expert, 0);
  }

  // All pairs of `source`; 0 where only some counts are there.
  int32_t sourcePairs(int32_t source) const {
    const int32_t* const counts = counts_.of(source);
    return std::accumulate(counts, counts + (hasAllCounts_ ? shape_.experts : 0), 0);
  }

  // Where the rows of `source` begin among the rows of an expert; a caller that goes through all sources in
  // order has those before it in begins_.
  int32_t beginOf(int32_t source, int32_t owner, int32_t expert) {
    if (!begins_.empty()) return begins_[static_cast<size_t>(expert)];
    int32_t begin = 0;
    for (int32_t before = 0; before < source; ++before) begin += count(before, owner, expert);
    return begin;
  }

  // The pieces that `source` sends to `owner`, whose slots have been ordered.
  void appendSends(int32_t owner, int32_t source, RoutingTables& to) {
    int32_t pair = pairBase(source, owner);
    int32_t expertRow = 0, slotIndex = 0;
    for (int32_t expert = 0, local = deal_.of(owner); expert < local; ++expert) {
      const int32_t rows = rowsOfOrdered(expert);
      const SlotCut slotCut = cut(rows);
      const int32_t begin = beginOf(source, owner, expert);
      const int32_t end = begin + count(source, owner, expert);
      for (int32_t at = begin; at < end;) {
        const int32_t slot = at / slotCut.length;
        const int32_t stop = std::min(end, (slot + 1) * slotCut.length);
        to.sends.push_back({owner, slotNumber(slotIndex + slot), expert, expertRow + at, pair + at - begin,
                            stop - at, groupOf(slotIndex + slot)});
        at = stop;
      }
      if (!begins_.empty()) begins_[static_cast<size_t>(expert)] = end;
      pair += end - begin;
      expertRow += rows;
      slotIndex += slotCut.slots;
    }
  }

  void buildSlots() {
    const int32_t local = deal_.of(rank_);
    tables_.expertRow.assign(local + 1, 0);
    tables_.expertSlots.assign(local, 0);
    orderSlots(rank_);
    orderGroups(rank_);
    auto& slots = tables_.slots;
    slots.assign(tables_.orderScratch_.size() / 2, Slot{});
    int32_t row = 0, slotIndex = 0;
    for (int32_t expert = 0; expert < tables_.experts(); ++expert) {
      const int32_t rows = rowsOfOrdered(expert);
      const SlotCut slotCut = cut(rows);
      tables_.expertRow[expert] = row;
      tables_.expertSlots[expert] = slotCut.slots;
      for (int32_t i = 0; i < slotCut.slots; ++i) {
        const int32_t begin = i * slotCut.length;
        slots[slotNumber(slotIndex++)] = {expert, row + begin, std::min(slotCut.length, rows - begin)};
      }
      row += rows;
    }
    tables_.expertRow.back() = row;
    tables_.rows = row;
    buildGroups();
  }

  void buildGroups() {
    auto& groups = tables_.groups;
    auto& groupOfSlot = tables_.groupOf;
    const auto& index = tables_.groupIndex_;
    groups.assign(shape_.groupSlots == 0 ? 0 : tables_.groupNumber_.size(), SlotGroup{});
    groupOfSlot.assign(index.size(), 0);
    tables_.expertGroups.assign(tables_.expertSlots.size(), 0);
    for (size_t i = 0; i < index.size(); ++i) {
      const int32_t slot = slotNumber(static_cast<int32_t>(i));
      const Slot& own = tables_.slots[slot];
      SlotGroup& group = groups[groupOf(static_cast<int32_t>(i))];
      if (group.slots++ == 0) {
        group.expert = own.expert;
        group.row = own.row;
        ++tables_.expertGroups[own.expert];
      }
      group.rows += own.rows;
      groupOfSlot[slot] = groupOf(static_cast<int32_t>(i));
    }
  }

  // Returns are sorted by slot, inside a slot by source, beginning with the rank after this one.
  void buildReturns() {
    auto& nextPair = tables_.nextPair_;
    nextPair.resize(static_cast<size_t>(peers_));
    // where rows return they lie by the shard that they come from
    for (int32_t source = 0; source < peers_; ++source)
      nextPair[source] = pairBase(source, rank_) + shape_.mesh.shardOf(rank_) * sourcePairs(source);
    auto& returns = tables_.returns;
    returns.clear();
    int32_t slotIndex = 0;
    for (int32_t expert = 0; expert < tables_.experts(); ++expert) {
      appendReturns(expert, slotIndex);
      slotIndex += tables_.expertSlots[expert];
    }
    std::sort(returns.begin(), returns.end(), [peers = peers_, rank = rank_](const Piece& a, const Piece& b) {
      if (a.slot != b.slot) return a.slot < b.slot;
      return (a.peer - rank - 1 + peers) % peers < (b.peer - rank - 1 + peers) % peers;
    });
  }

  // The scratch memory still holds this rank's own order, in which the expert's slots begin at `slotIndex`.
  void appendReturns(int32_t expert, int32_t slotIndex) {
    const int32_t row = tables_.expertRow[expert];
    const SlotCut slotCut = cut(tables_.expertRow[expert + 1] - row);
    int32_t at = 0;
    for (int32_t source = 0; source < peers_; ++source) {
      const int32_t end = at + count(source, rank_, expert);
      while (at < end) {
        const int32_t slot = at / slotCut.length;
        const int32_t rows = std::min(end, (slot + 1) * slotCut.length) - at;
        const Mesh::Peers to = shape_.mesh.returnsTo(source);
        for (int32_t peer = to.first; peer < to.first + to.count; ++peer)
          tables_.returns.push_back({peer, slotNumber(slotIndex + slot), expert, row + at,
                                     tables_.nextPair_[source], rows, groupOf(slotIndex + slot)});
        tables_.nextPair_[source] += rows;
        at += rows;
      }
    }
  }

  const RoutingShape& shape_;
  const ExpertDeal deal_;
  const int32_t peers_;
  const int32_t rank_;
  const AllCounts counts_;
  int32_t firstColumn_ = 0;  // of the counts: an expert of all
  bool hasAllCounts_ = true;
  RoutingTables& tables_;
  std::vector<int32_t> begins_;  // see beginOf()
};

namespace {

void setSizes(const RoutingShape& shape, int32_t tokens, int32_t pairs, RoutingTables& tables) {
  tables.tokens = tokens;
  tables.tokenSlots = (tokens + shape.tokenSlot - 1) / shape.tokenSlot;
  tables.pairs = pairs;
  tables.pairOf.resize(pairs);
  tables.positionOf.resize(int64_t{tokens} * shape.topK);
  tables.tokenOf.resize(shape.mesh.peers() == 1 ? pairs : 0);
}

}  // namespace

Status checkIds(std::span<const int32_t> expertIds, int32_t topK, int32_t experts) {
  for (size_t row = 0; row < expertIds.size(); row += static_cast<size_t>(topK)) {
    const std::span ids = expertIds.subspan(row, static_cast<size_t>(topK));
    const auto name = [&](int32_t k) {
      return fmt::format("expert_ids[{},{}]", row / static_cast<size_t>(topK), k);
    };
    for (int32_t k = 0; k < topK; ++k) {
      const int32_t id = ids[k];
      if (id == -1) continue;
      if (id < 0 || id >= experts)
        return Error{fmt::format("{} is {}, expected -1 (masked) or 0 to {}", name(k), id, experts - 1)};
      for (int32_t before = 0; before < k; ++before)
        if (ids[before] == id)
          return Error{fmt::format("{} is {}, as is {}; expected distinct ids", name(k), id, name(before))};
    }
  }
  return {};
}

void countPairs(const RoutingShape& shape, std::span<const int32_t> expertIds, int32_t tokens,
                RoutingTables& tables, std::span<int32_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  for (const int32_t id : expertIds)
    if (id >= 0) ++counts[id];
  int32_t pairs = 0;
  for (int32_t& count : counts) {
    const int32_t begin = pairs;
    pairs += count;
    count = begin;
  }
  setSizes(shape, tokens, pairs, tables);
  const bool isAlone = !tables.tokenOf.empty();
  for (int32_t token = 0, pair = 0; token < tokens; ++token)
    for (int32_t k = 0; k < shape.topK; ++k, ++pair) {
      const int32_t id = expertIds[pair];
      tables.positionOf[pair] = id < 0 ? -1 : counts[id];
      if (id < 0) continue;
      if (isAlone) tables.tokenOf[counts[id]] = token;
      tables.pairOf[counts[id]++] = pair;
    }
  // counts[e] is now the end of e: back to lengths
  for (int32_t e = shape.experts - 1; e > 0; --e) counts[e] -= counts[e - 1];
}

void countAllPairs(const RoutingShape& shape, int32_t tokens, RoutingTables& tables,
                   std::span<int32_t> counts) {
  const int32_t topK = shape.topK;
  std::fill(counts.begin(), counts.end(), tokens);
  setSizes(shape, tokens, tokens * topK, tables);
  for (int32_t expert = 0; expert < topK; ++expert)
    for (int32_t token = 0; token < tokens; ++token) {
      const int32_t position = expert * tokens + token, pair = token * topK + expert;
      tables.positionOf[pair] = position;
      tables.pairOf[position] = pair;
      if (!tables.tokenOf.empty()) tables.tokenOf[position] = token;
    }
}

std::vector<int32_t> listPlaces(const RoutingShape& shape, const RoutingTables& tables) {
  std::vector<int32_t> places(static_cast<size_t>(tables.tokens) * static_cast<size_t>(shape.topK), -1);
  const ExpertDeal deal = shape.deal();
  for (const Piece& piece : tables.sends)
    for (int32_t row = 0; row < piece.rows; ++row)
      places[static_cast<size_t>(tables.pairOf[static_cast<size_t>(piece.pair + row)])] =
          deal.first(piece.peer) + piece.expert;
  return places;
}

int64_t rowsAt(const RoutingShape& shape, int32_t rank, const AllCounts& counts) {
  const ExpertDeal deal = shape.deal();
  const int32_t first = deal.first(rank);
  int64_t rows = 0;
  for (int32_t source = 0; source < shape.mesh.peers(); ++source)
    if (shape.mesh.sends(source, rank))
      rows = std::accumulate(counts.of(source) + first, counts.of(source) + first + deal.of(rank), rows);
  return rows;
}

void buildTables(const RoutingShape& shape, int32_t rank, const AllCounts& counts, RoutingTables& tables) {
  RoutingBuilder(shape, rank, counts, tables).build();
}

void buildAllTables(const RoutingShape& shape, const AllCounts& counts, std::span<RoutingTables> tables) {
  for (RoutingTables& each : tables) each.sends.clear();
  for (int32_t rank = 0; rank < std::ssize(tables); ++rank)
    RoutingBuilder(shape, rank, counts, tables[static_cast<size_t>(rank)]).buildSendsOfAll(tables);
  for (int32_t rank = 0; rank < std::ssize(tables); ++rank)
    RoutingBuilder(shape, rank, counts, tables[static_cast<size_t>(rank)]).buildRest();
}

void buildReceived(const RoutingShape& shape, int32_t rank, const AllCounts& ofOwnExperts,
                   RoutingTables& tables) {
  RoutingBuilder(shape, rank, ofOwnExperts, tables).buildReceived();
}

void orderSends(const Mesh& mesh, int32_t rank, std::vector<Piece>& sends) {
  const int32_t peers = mesh.peers();
  std::sort(sends.begin(), sends.end(), [peers, rank](const Piece& a, const Piece& b) {
    const auto key = [&](const Piece& piece) {
      const int64_t offset = (piece.peer - rank + peers) % peers;
      return offset == 0 ? int64_t{-1} : int64_t{piece.expert} * peers + offset;
    };
    const int64_t keyA = key(a), keyB = key(b);
    return keyA != keyB ? keyA < keyB : a.row < b.row;
  });
}

int64_t liveSlots(const RoutingTables& tables, SpaceKind space) {
  switch (space) {
    case SpaceKind::kTokens:
      return tables.tokenSlots;
    case SpaceKind::kRows:
      return static_cast<int64_t>(tables.slots.size());
    case SpaceKind::kSends:
      return static_cast<int64_t>(tables.sends.size());
    case SpaceKind::kReturns:
      return static_cast<int64_t>(tables.returns.size());
    case SpaceKind::kExperts:
      return tables.experts();
    case SpaceKind::kOnce:
      return 1;
    case SpaceKind::kGroups:
      return static_cast<int64_t>(tables.groups.size());
  }
  return 0;
}

int64_t liveEvents(const RoutingTables& tables, EventSpace events) {
  return liveSlots(tables, countedSpace(events));
}

int64_t eventIndex(const RoutingTables& tables, SpaceKind space, int64_t slot, EventSpace events) {
  if (events == EventSpace::kOne) return 0;
  if (events == findInfo(space).own) return slot;
  if (isRemote(space)) {
    const Piece& piece = findPiece(tables, space, slot);
    if (events == EventSpace::kRows) return piece.slot;
    return events == EventSpace::kGroups ? piece.group : piece.expert;
  }
  if (events == EventSpace::kGroups) return tables.groupOf[slot];
  return space == SpaceKind::kGroups ? tables.groups[slot].expert : tables.slots[slot].expert;
}

}  // namespace sluice
