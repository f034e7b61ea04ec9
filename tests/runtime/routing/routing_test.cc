// Slots, pieces and positions against a brute-force sort of all rows of all ranks.
#include "runtime/routing/routing.h"

#include <algorithm>
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

// One-hot, skewed, masked or uniform routing; T from 0 up, different on every rank.
World makeWorld(std::mt19937& random, int groupSlots = 0) {
  World world;
  auto& shape = world.shape;
  shape.mesh.ep = 1 + random() % 5;
  shape.experts =
      1 + random() % (5 * shape.mesh.peers());  // also fewer than ranks, and such as they do not divide
  shape.topK = 1 + random() % std::min(4, shape.experts);
  shape.slotRows = std::vector<int32_t>{16, 32, 48, 128, 7}[random() % 5];
  shape.groupSlots = groupSlots;
  const int kind = random() % 4;
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
    world.ids.push_back(ids);
    world.tables.emplace_back();
    std::vector<int32_t> own(shape.experts);
    REQUIRE(countPairs(shape, ids, tokens, world.tables.back(), own).ok());
    counts.insert(counts.end(), own.begin(), own.end());
  }
  for (int rank = 0; rank < shape.mesh.peers(); ++rank)
    buildTables(shape, rank, {counts.data(), static_cast<size_t>(shape.experts)}, world.tables[rank]);
  return world;
}

// Experts of a rank: the first of them, and how many.
std::pair<int, int> expertsOf(const RoutingShape& shape, int rank) {
  int first = 0;
  for (int before = 0; before < rank; ++before) first += expertsOf(shape, before).second;
  return {first, shape.experts / shape.mesh.peers() + (rank < shape.experts % shape.mesh.peers())};
}

int ownerOf(const RoutingShape& shape, int expert) {
  int rank = 0;
  while (expert >= expertsOf(shape, rank).first + expertsOf(shape, rank).second) ++rank;
  return rank;
}

// (owner, row at owner) of every (source, t, k), straight from the definition: expert-major, inside an expert
// by source rank, then by token.
std::map<std::tuple<int, int>, std::pair<int, int>> expectedRows(const World& world) {
  std::vector<std::tuple<int, int, int>> all;  // expert, source, pair (t * K + k)
  for (int source = 0; source < world.shape.mesh.peers(); ++source)
    for (size_t pair = 0; pair < world.ids[source].size(); ++pair)
      if (world.ids[source][pair] >= 0) all.emplace_back(world.ids[source][pair], source, pair);
  std::sort(all.begin(), all.end());
  std::map<std::tuple<int, int>, std::pair<int, int>> rows;
  std::vector<int> used(world.shape.mesh.peers(), 0);
  for (const auto& [expert, source, pair] : all) {
    const int owner = ownerOf(world.shape, expert);
    rows[{source, pair}] = {owner, used[owner]++};
  }
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
        for (int i = 0; i < piece.rows; ++i, ++sent) {
          const auto [owner, row] = expected.at({rank, tables.pairOf.at(piece.pair + i)});
          REQUIRE(owner == piece.peer);
          REQUIRE(row == piece.row + i);
        }
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

TEST_CASE("returns are the sends of the other side") {
  std::mt19937 random(13);
  for (int trial = 0; trial < 300; ++trial) {
    const World world = makeWorld(random);
    using Key = std::tuple<int, int, int, int, int, int>;
    std::set<Key> sends, returns;
    for (int rank = 0; rank < world.shape.mesh.peers(); ++rank) {
      for (const Piece& p : world.tables[rank].sends)
        sends.insert({rank, p.peer, p.slot, p.row, p.pair, p.rows});
      int slot = 0;
      for (const Piece& p : world.tables[rank].returns) {
        returns.insert({p.peer, rank, p.slot, p.row, p.pair, p.rows});
        REQUIRE(p.slot >= slot);
        slot = p.slot;
      }
    }
    REQUIRE(sends == returns);
  }
}

TEST_CASE("own pieces are sent first and own-only slots come first") {
  std::mt19937 random(17);
  for (int trial = 0; trial < 100; ++trial) {
    const World world = makeWorld(random);
    for (int rank = 0; rank < world.shape.mesh.peers(); ++rank) {
      const auto& tables = world.tables[rank];
      const auto isOwn = [&](const Piece& piece) { return piece.peer == rank; };
      REQUIRE(std::is_partitioned(tables.sends.begin(), tables.sends.end(), isOwn));
      std::vector<bool> foreign(tables.slots.size(), false);
      for (const Piece& piece : tables.returns)
        if (piece.peer != rank) foreign[piece.slot] = true;
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
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int experts = 1; experts <= 40; ++experts) {
      const RoutingShape shape{{ranks}, experts, 1, 16};
      const ExpertDeal deal = shape.deal();
      INFO(experts << " experts, " << ranks << " ranks");
      CHECK(deal.most() - deal.fewest() == (deal.differ() ? 1 : 0));
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(std::pair(deal.first(rank), deal.of(rank)) == expertsOf(shape, rank));
        for (int expert = deal.first(rank); expert < deal.first(rank + 1); ++expert)
          CHECK(deal.owner(expert) == rank);
      }
      CHECK(deal.first(ranks) == experts);
    }
}

TEST_CASE("a rank has the tables of its own experts, and counts the pairs that go to each rank") {
  std::mt19937 random(23);
  for (int trial = 0; trial < 200; ++trial) {
    const World world = makeWorld(random);
    for (int rank = 0; rank < world.shape.mesh.peers(); ++rank) {
      const RoutingTables& tables = world.tables[rank];
      const int local = expertsOf(world.shape, rank).second;
      REQUIRE(tables.experts() == local);
      REQUIRE(static_cast<int>(tables.expertRow.size()) == local + 1);
      REQUIRE(tables.expertRow.back() == tables.rows);
      std::vector<int> pairs(world.shape.mesh.peers(), 0);
      for (const int32_t id : world.ids[rank])
        if (id >= 0) ++pairs[ownerOf(world.shape, id)];
      REQUIRE(pairs == tables.pairsTo);
      for (int other = 0; other < world.shape.mesh.peers(); ++other)
        REQUIRE(tables.rowsFrom[other] == world.tables[other].pairsTo[rank]);
    }
  }
}

TEST_CASE("a bad expert id is refused with its place") {
  const RoutingShape shape{{1}, 4, 2, 16};
  RoutingTables tables;
  std::vector<int32_t> counts(4);
  CHECK(countPairs(shape, std::vector<int32_t>{0, 1, 2, 4}, 2, tables, counts).error().message ==
        "expert_ids[1,1] is 4, expected -1 (masked) or 0 to 3");
  CHECK(countPairs(shape, std::vector<int32_t>{0, -2}, 1, tables, counts).error().message ==
        "expert_ids[0,1] is -2, expected -1 (masked) or 0 to 3");
  CHECK(countPairs(shape, std::vector<int32_t>{3, 3}, 1, tables, counts).error().message ==
        "expert_ids[0,1] is 3, as is expert_ids[0,0]; expected distinct ids");
  CHECK(countPairs(shape, std::vector<int32_t>{-1, -1}, 1, tables, counts).ok());
}

}  // namespace
}  // namespace sluice
