#include "runtime/routing/rows.h"

#include <catch2/catch.hpp>
#include <vector>

namespace sluice {
namespace {

// Rank 0 of two with two experts each, as it routes 37 tokens to one expert each, and rank 1 as many.
RoutingTables tablesOf(const RoutingShape& shape) {
  RoutingTables tables;
  std::vector<int32_t> ids, counts(2 * 4);
  for (int32_t token = 0; token < 37; ++token) ids.push_back(token % 5 == 4 ? 3 : token % 3);
  countPairs(shape, ids, 37, tables, {counts.data(), 4});
  for (size_t expert = 0; expert < 4; ++expert) counts[4 + expert] = counts[3 - expert];
  buildTables(shape, 0, {counts.data(), 4}, tables);
  return tables;
}

TEST_CASE("the slots of a space have every row or token in one slot, with the expert that owns the row") {
  constexpr int32_t kTokenSlot = 10;
  const RoutingTables tables = tablesOf(
      {.mesh = {.ep = 2}, .experts = 4, .topK = 1, .slotRows = 16, .groupSlots = 2, .tokenSlot = kTokenSlot});
  REQUIRE(tables.rows > 32);
  for (const SpaceKind space : {SpaceKind::kTokens, SpaceKind::kRows, SpaceKind::kReturns,
                                SpaceKind::kExperts, SpaceKind::kGroups, SpaceKind::kOnce}) {
    INFO("space " << static_cast<int>(space));
    const bool tokens = space == SpaceKind::kTokens || space == SpaceKind::kOnce;
    std::vector<int32_t> expertOf(static_cast<size_t>(tokens ? tables.tokens : tables.rows), -1);
    for (int64_t slot = 0; slot < liveSlots(tables, space); ++slot) {
      const RowRange range = findRows(tables, space, slot, kTokenSlot);
      for (int32_t row = range.begin; row < range.begin + range.rows; ++row) {
        REQUIRE(expertOf.at(static_cast<size_t>(row)) == -1);
        expertOf[static_cast<size_t>(row)] = range.expert;
      }
    }
    for (int32_t row = 0; row < static_cast<int32_t>(expertOf.size()); ++row) {
      const int32_t owner = tokens ? 0 : row >= tables.expertRow[1];
      CHECK(expertOf[static_cast<size_t>(row)] == owner);
    }
  }
}

TEST_CASE("the rows of a send are those of the piece at its receiver") {
  const RoutingTables tables =
      tablesOf({.mesh = {.ep = 2}, .experts = 4, .topK = 1, .slotRows = 16, .tokenSlot = 10});
  int32_t rows = 0;
  for (int64_t slot = 0; slot < liveSlots(tables, SpaceKind::kSends); ++slot) {
    const RowRange range = findRows(tables, SpaceKind::kSends, slot, 16);
    const Piece& piece = tables.sends[static_cast<size_t>(slot)];
    CHECK(range.begin == piece.row);
    CHECK(range.expert == piece.expert);
    rows += range.rows;
  }
  CHECK(rows == tables.pairs);
}

}  // namespace
}  // namespace sluice
