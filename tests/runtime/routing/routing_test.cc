// Slots, pieces and positions against a brute-force sort of all rows of all ranks.
#include "runtime/routing/routing.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace sluice {
namespace {

struct World {
  RoutingShape shape;
  std::vector<std::vector<int32_t>> ids;  // by rank: [T, K]
  std::vector<RoutingTables> tables;      // by rank
};

bool isSame(const RoutingShape& shape) { return shape.mesh.tokens == TokenHolders::kSame; }

bool areEqual(const RoutingTables& a, const RoutingTables& b) {
  const auto pieces = [](const std::vector<Piece>& all) {
    std::vector<std::array<int32_t, 7>> fields;
    for (const Piece& p : all) fields.push_back({p.peer, p.slot, p.expert, p.row, p.pair, p.rows, p.group});
    return fields;
  };
  const auto slots = [](const std::vector<Slot>& all) {
    std::vector<std::array<int32_t, 3>> fields;
    for (const Slot& slot : all) fields.push_back({slot.expert, slot.row, slot.rows});
    return fields;
  };
  return pieces(a.sends) == pieces(b.sends) && pieces(a.returns) == pieces(b.returns) &&
         slots(a.slots) == slots(b.slots) && a.groupOf == b.groupOf && a.groups.size() == b.groups.size() &&
         a.rows == b.rows && a.returned == b.returned && a.expertRow == b.expertRow &&
         a.rowsFrom == b.rowsFrom && a.returnsFrom == b.returnsFrom;
}

// One-hot, skewed, masked or uniform routing; T from 0 up, different on every rank.
World makeWorld(std::mt19937& random, int groupSlots = 0) {
  World world;
  auto& shape = world.shape;
  shape.mesh.ep = 1 + random() % 5;
  if (random() % 2 == 0) shape.mesh.tp = 1 + random() % 4;
  if (random() % 2 == 0) shape.mesh.tokens = TokenHolders::kSame;
  shape.experts =
      1 + random() % (5 * shape.mesh.ep);  // also fewer than groups, and such as they do not divide
  shape.topK = 1 + random() % std::min(4, shape.experts);
  shape.slotRows = std::vector<int32_t>{16, 32, 48, 128, 7}[random() % 5];
  shape.groupSlots = groupSlots;
  shape.ownLast = random() % 3 == 0;
  const int kind = random() % 4;
  if (kind == 1 && random() % 2 == 0 && shape.experts <= 6) shape.topK = shape.experts;
  std::vector<int32_t> counts;
  for (int rank = 0; rank < shape.mesh.peers(); ++rank) {
    const int32_t tokens = random() % 3 == 0 ? 0 : random() % 200;
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> row;
      while (static_cast<int32_t>(row.size()) < shape.topK) {
        int32_t id = random() % shape.experts;
        if (kind == 1) id = static_cast<int32_t>(row.size());  // the same experts for all
        if (kind == 2) id = std::min<int32_t>(id, random() % shape.experts);
        if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
      }
      if (kind == 3)
        for (int32_t& id : row)
          if (random() % 4 == 0) id = -1;
      ids.insert(ids.end(), row.begin(), row.end());
    }
    if (isSame(shape) && rank % shape.mesh.tp != 0) ids = world.ids.back();
    world.ids.push_back(ids);
    world.tables.emplace_back();
    std::vector<int32_t> own(shape.experts);
    const auto count = static_cast<int32_t>(ids.size()) / shape.topK;
    countPairs(shape, ids, count, world.tables.back(), own);
    if (kind == 1 && shape.topK == shape.experts) {
      // every token to every expert: the same without ids
      RoutingTables without;
      std::vector<int32_t> all(shape.experts);
      countAllPairs(shape, count, without, all);
      REQUIRE(all == own);
      REQUIRE(without.pairs == world.tables.back().pairs);
      REQUIRE(without.tokenSlots == world.tables.back().tokenSlots);
      REQUIRE(without.pairOf == world.tables.back().pairOf);
      REQUIRE(without.positionOf == world.tables.back().positionOf);
    }
    counts.insert(counts.end(), own.begin(), own.end());
  }
  std::vector<RoutingTables> counted = world.tables;
  for (int rank = 0; rank < shape.mesh.peers(); ++rank) {
    const AllCounts all{counts.data(), static_cast<size_t>(shape.experts)};
    buildTables(shape, rank, all, world.tables[rank]);
    REQUIRE(rowsAt(shape, rank, all) == world.tables[rank].rows);
  }
  buildAllTables(shape, {counts.data(), static_cast<size_t>(shape.experts)}, counted);
  for (size_t rank = 0; rank < counted.size(); ++rank) REQUIRE(areEqual(counted[rank], world.tables[rank]));
  return world;
}

// Experts of a group: the first of them, and how many.
std::pair<int, int> countExperts(const RoutingShape& shape, int group) {
  int first = 0;
  for (int before = 0; before < group; ++before) first += countExperts(shape, before).second;
  return {first, shape.experts / shape.mesh.ep + (group < shape.experts % shape.mesh.ep)};
}

int groupThatOwns(const RoutingShape& shape, int expert) {
  int group = 0;
  while (expert >= countExperts(shape, group).first + countExperts(shape, group).second) ++group;
  return group;
}

// The ranks of the group that get the rows of `source`: all of them, or that of the same shard where the
// ranks of a group have the same tokens.
std::vector<int> receiversOf(const RoutingShape& shape, int source, int group) {
  const int tp = shape.mesh.tp;
  if (isSame(shape)) return {group * tp + source % tp};
  std::vector<int> all;
  for (int shard = 0; shard < tp; ++shard) all.push_back(group * tp + shard);
  return all;
}

// The row at each receiver of every (source, receiver, t, k), straight from the definition: expert-major,
// inside an expert by source rank, then by token.
std::map<std::tuple<int, int, int>, int> expectedRows(const World& world) {
  std::vector<std::tuple<int, int, int>> all;  // expert, source, pair (t * K + k)
  for (int source = 0; source < world.shape.mesh.peers(); ++source)
    for (size_t pair = 0; pair < world.ids[source].size(); ++pair)
      if (world.ids[source][pair] >= 0) all.emplace_back(world.ids[source][pair], source, pair);
  std::sort(all.begin(), all.end());
  std::map<std::tuple<int, int, int>, int> rows;
  std::vector<int> used(world.shape.mesh.peers(), 0);
  for (const auto& [expert, source, pair] : all)
    for (const int receiver : receiversOf(world.shape, source, groupThatOwns(world.shape, expert)))
      rows[{source, receiver, pair}] = used[receiver]++;
  return rows;
}

TEST_CASE("every pair is sent to its row exactly once, inside one slot") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const World world = makeWorld(random);
    const auto expected = expectedRows(world);
    size_t sent = 0;
    for (int rank = 0; rank < world.shape.mesh.peers(); ++rank) {
      const RoutingTables& tables = world.tables[rank];
      for (const Piece& piece : tables.sends) {
        const Slot& slot = world.tables[piece.peer].slots.at(piece.slot);
        REQUIRE(piece.rows > 0);
        REQUIRE(piece.expert == slot.expert);
        REQUIRE(piece.row >= slot.row);
        REQUIRE(piece.row + piece.rows <= slot.row + slot.rows);
        for (int i = 0; i < piece.rows; ++i, ++sent)
          REQUIRE(expected.at({rank, piece.peer, tables.pairOf.at(piece.pair + i)}) == piece.row + i);
      }
    }
    REQUIRE(sent == expected.size());
  }
}

TEST_CASE("slots cover the rows of every expert, none is empty, and there are few of them") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const World world = makeWorld(random);
    for (const RoutingTables& tables : world.tables) {
      std::vector<int> covered(tables.rows, 0);
      for (const Slot& slot : tables.slots) {
        REQUIRE(slot.rows > 0);
        REQUIRE(slot.rows <= world.shape.slotRows);
        REQUIRE(slot.row >= tables.expertRow[slot.expert]);
        REQUIRE(slot.row + slot.rows <= tables.expertRow[slot.expert + 1]);
        for (int i = 0; i < slot.rows; ++i) ++covered.at(slot.row + i);
      }
      REQUIRE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
      REQUIRE(static_cast<int>(tables.slots.size()) <= tables.rows / world.shape.slotRows + tables.experts());
    }
  }
}

TEST_CASE("returns are the sends of the other side, once to every rank that has the tokens") {
  std::mt19937 random(13);
  for (int trial = 0; trial < 300; ++trial) {
    const World world = makeWorld(random);
    const int tp = world.shape.mesh.tp;
    using Key = std::tuple<int, int, int, int, int, int>;
    std::set<Key> expected, returns;
    for (int rank = 0; rank < world.shape.mesh.peers(); ++rank) {
      const RoutingTables& tables = world.tables[rank];
      for (const Piece& p : tables.sends) {
        const int pair = p.peer % tp * tables.pairs + p.pair;
        for (int other = 0; other < world.shape.mesh.peers(); ++other)
          if (other == rank || (isSame(world.shape) && other / tp == rank / tp))
            expected.insert({other, p.peer, p.slot, p.row, pair, p.rows});
      }
      int slot = 0;
      for (const Piece& p : tables.returns) {
        returns.insert({p.peer, rank, p.slot, p.row, p.pair, p.rows});
        REQUIRE(p.slot >= slot);
        slot = p.slot;
      }
    }
    REQUIRE(expected == returns);
  }
}

TEST_CASE("every part of every pair returns to its place exactly once") {
  std::mt19937 random(29);
  for (int trial = 0; trial < 200; ++trial) {
    const World world = makeWorld(random);
    const int ranks = world.shape.mesh.peers();
    std::vector<std::vector<int>> filled(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(world.tables[rank].returned == world.tables[rank].pairs * world.shape.mesh.tp);
      filled[rank].resize(world.tables[rank].returned);
    }
    for (int rank = 0; rank < ranks; ++rank)
      for (const Piece& p : world.tables[rank].returns)
        for (int i = 0; i < p.rows; ++i) ++filled[p.peer].at(p.pair + i);
    for (const auto& rows : filled)
      REQUIRE(std::all_of(rows.begin(), rows.end(), [](int n) { return n == 1; }));
  }
}

TEST_CASE("own pieces are sent first, and own-only slots come first, or last where they can wait") {
  std::mt19937 random(17);
  for (int trial = 0; trial < 100; ++trial) {
    const World world = makeWorld(random);
    for (int rank = 0; rank < world.shape.mesh.peers(); ++rank) {
      const auto& tables = world.tables[rank];
      const auto isOwn = [&](const Piece& piece) { return piece.peer == rank; };
      REQUIRE(std::is_partitioned(tables.sends.begin(), tables.sends.end(), isOwn));
      std::vector<bool> foreign(tables.slots.size(), false);
      for (int source = 0; source < world.shape.mesh.peers(); ++source)
        for (const Piece& piece : world.tables[source].sends)
          if (source != rank && piece.peer == rank) foreign[piece.slot] = true;
      if (world.shape.ownLast) std::reverse(foreign.begin(), foreign.end());
      REQUIRE(std::is_sorted(foreign.begin(), foreign.end()));
    }
  }
}

// Groups of slots, from the definition: by expert, neighbours in the order of rows, even, numbered by the
// last.
TEST_CASE("groups hold neighbouring slots of one expert, evenly dealt, in the order in which they fill") {
  std::mt19937 random(19);
  for (int trial = 0; trial < 200; ++trial) {
    const World world = makeWorld(random, 1 + static_cast<int>(random() % 4));
    for (const RoutingTables& tables : world.tables) {
      REQUIRE(tables.groupOf.size() == tables.slots.size());
      std::vector<std::vector<int>> members(tables.groups.size());
      for (size_t slot = 0; slot < tables.slots.size(); ++slot)
        members.at(tables.groupOf[slot]).push_back(static_cast<int>(slot));
      int last = -1;
      std::vector<int> fewest(tables.experts(), 1 << 20), most(tables.experts(), 0),
          count(tables.experts(), 0);
      for (size_t g = 0; g < members.size(); ++g) {
        const SlotGroup& group = tables.groups[g];
        REQUIRE(group.slots == static_cast<int>(members[g].size()));
        REQUIRE(group.slots >= 1);
        REQUIRE(group.slots <= world.shape.groupSlots);
        REQUIRE(members[g].back() > last);  // members are in the order of slots
        last = members[g].back();
        std::sort(members[g].begin(), members[g].end(),
                  [&](int a, int b) { return tables.slots[a].row < tables.slots[b].row; });
        int row = group.row;
        for (int slot : members[g]) {
          REQUIRE(tables.slots[slot].expert == group.expert);
          REQUIRE(tables.slots[slot].row == row);
          row += tables.slots[slot].rows;
        }
        REQUIRE(row == group.row + group.rows);
        fewest[group.expert] = std::min(fewest[group.expert], group.slots);
        most[group.expert] = std::max(most[group.expert], group.slots);
        ++count[group.expert];
      }
      REQUIRE(count == tables.expertGroups);
      for (size_t expert = 0; expert < count.size(); ++expert) {
        REQUIRE(count[expert] ==
                (tables.expertSlots[expert] + world.shape.groupSlots - 1) / world.shape.groupSlots);
        if (count[expert] > 0) REQUIRE(most[expert] - fewest[expert] <= 1);
      }
      for (const Piece& piece : tables.sends)
        REQUIRE(piece.group == world.tables[piece.peer].groupOf.at(piece.slot));
      for (const Piece& piece : tables.returns) REQUIRE(piece.group == tables.groupOf.at(piece.slot));
    }
  }
}

TEST_CASE("groups change nothing of slots and pieces, and there are none where slots are not grouped") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 one(seed), other(seed);
    const World plain = makeWorld(one), grouped = makeWorld(other, 3);
    for (size_t rank = 0; rank < plain.tables.size(); ++rank) {
      const RoutingTables &a = plain.tables[rank], &b = grouped.tables[rank];
      REQUIRE(a.groups.empty());
      REQUIRE(a.groupOf.empty());
      REQUIRE(a.slots.size() == b.slots.size());
      for (size_t i = 0; i < a.slots.size(); ++i) REQUIRE(a.slots[i].row == b.slots[i].row);
      REQUIRE(a.sends.size() == b.sends.size());
      for (size_t i = 0; i < a.sends.size(); ++i) REQUIRE(a.sends[i].slot == b.sends[i].slot);
    }
  }
}

TEST_CASE("every expert has one owner, ranks own neighbours, and their numbers differ by one at most") {
  for (int groups = 1; groups <= 9; ++groups)
    for (int experts = 1; experts <= 40; ++experts)
      for (int tp = 1; tp <= 3; ++tp) {
        const RoutingShape shape{{groups, tp}, experts, 1, 16};
        const ExpertDeal deal = shape.deal();
        INFO(experts << " experts, " << groups << " groups of " << tp);
        CHECK(deal.most() - deal.fewest() == (deal.differ() ? 1 : 0));
        for (int rank = 0; rank < groups * tp; ++rank) {
          CHECK(std::pair(deal.first(rank), deal.of(rank)) == countExperts(shape, rank / tp));
          for (int expert = deal.first(rank); expert < deal.first(rank) + deal.of(rank); ++expert)
            CHECK(deal.owner(expert) == rank / tp);
        }
        CHECK(deal.first(groups * tp) == experts);
      }
}

TEST_CASE("a rank has the tables of its own experts, and counts what each rank sends and returns") {
  std::mt19937 random(23);
  for (int trial = 0; trial < 200; ++trial) {
    const World world = makeWorld(random);
    const int ranks = world.shape.mesh.peers(), tp = world.shape.mesh.tp;
    for (int rank = 0; rank < ranks; ++rank) {
      const RoutingTables& tables = world.tables[rank];
      const int local = countExperts(world.shape, rank / tp).second;
      REQUIRE(tables.experts() == local);
      REQUIRE(static_cast<int>(tables.expertRow.size()) == local + 1);
      REQUIRE(tables.expertRow.back() == tables.rows);
      std::vector<int> sent(ranks, 0), returned(ranks, 0);
      for (const int32_t id : world.ids[rank]) {
        if (id < 0) continue;
        const int group = groupThatOwns(world.shape, id);
        for (const int receiver : receiversOf(world.shape, rank, group)) ++sent[receiver];
        for (int shard = 0; shard < tp; ++shard) ++returned[group * tp + shard];
      }
      REQUIRE(returned == tables.returnsFrom);
      for (int other = 0; other < ranks; ++other) REQUIRE(world.tables[other].rowsFrom[rank] == sent[other]);
    }
  }
}

TEST_CASE("a bad expert id is refused with its place") {
  CHECK(checkIds(std::vector<int32_t>{0, 1, 2, 4}, 2, 4).error().message ==
        "expert_ids[1,1] is 4, expected -1 (masked) or 0 to 3");
  CHECK(checkIds(std::vector<int32_t>{0, -2}, 2, 4).error().message ==
        "expert_ids[0,1] is -2, expected -1 (masked) or 0 to 3");
  CHECK(checkIds(std::vector<int32_t>{3, 3}, 2, 4).error().message ==
        "expert_ids[0,1] is 3, as is expert_ids[0,0]; expected distinct ids");
  CHECK(checkIds(std::vector<int32_t>{-1, -1}, 2, 4).ok());
}

}  // namespace
}  // namespace sluice
