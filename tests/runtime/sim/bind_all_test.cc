#include "runtime/sim/bind_all.h"

#include <catch2/catch.hpp>

#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

std::string errorOf(const Plan& plan, const std::vector<TestRouting>& ranks) {
  const Expected<BoundRouting> bound = bindIds(plan, ranks);
  return bound ? "" : bound.error().message;
}

TEST_CASE("what ranks bind is checked, and the error names the rank") {
  const Plan plan = planOf(buildMoeProgram({.ranks = 2, .experts = 4, .topK = 2, .maxTokens = 3}));
  const TestRouting good{1, {0, 3}};
  CHECK(errorOf(plan, {good, good}) == "");
  CHECK(errorOf(plan, {good}) == "found the routing of 1 ranks, expected 2");
  CHECK(errorOf(plan, {good, {4, std::vector<int32_t>(8, -1)}}) == "rank 1: found 4 tokens, expected 0 to 3");
  CHECK(errorOf(plan, {{2, {0, 3}}, good}) == "rank 0: found 2 expert ids, expected 4");
  CHECK(errorOf(plan, {good, {1, {0, 4}}}).starts_with("rank 1: "));
  CHECK(errorOf(plan, {good, {1, {2, 2}}}).starts_with("rank 1: "));
}

TEST_CASE("ranks of a group that must have the same tokens have the same ids") {
  const Plan plan = planOf(
      buildMoeProgram({.ranks = 2, .experts = 2, .topK = 1, .maxTokens = 8, .tp = 2, .sameTokens = true}));
  CHECK(errorOf(plan, {{2, {0, 1}}, {2, {0, 1}}}) == "");
  CHECK(errorOf(plan, {{2, {0, 1}}, {1, {0}}}) ==
        "rank 1: found other tokens than at rank 0 of its group, expected the same");
  CHECK(errorOf(plan, {{2, {0, 1}}, {2, {1, 0}}}) ==
        "rank 1: found other tokens than at rank 0 of its group, expected the same");
}

TEST_CASE("tables are those of the counts of all ranks, in the order that each entry takes") {
  const Plan plan = planOf(buildMoeProgram({.ranks = 2, .experts = 4, .topK = 2, .maxTokens = 50}));
  const Expected<BoundRouting> bound = bindIds(plan, {{2, {0, 3, 2, -1}}, {1, {3, 2}}});
  REQUIRE(bound);
  const AllTables& forward = bound->of(plan, EntryId{0});
  CHECK(forward[0].rows == 1);
  CHECK(forward[1].rows == 4);
  CHECK(forward[0].pairs == 3);
  CHECK(forward[1].rowsFrom == std::vector<int32_t>{2, 2});
  CHECK(&bound->of(plan, EntryId{1}) == &forward);

  // without expert ids: all tokens to all ranks; the backward takes its own rows last, or the forward does
  for (const bool column : {true, false}) {
    const Plan linear = planOf(buildLinearProgram({.column = column}));
    const Expected<BoundRouting> all = bindIds(linear, {{17, {}}, {5, {}}});
    REQUIRE(all);
    for (const EntryId entry : {EntryId{0}, EntryId{1}}) {
      const AllTables& tables = all->of(linear, entry);
      CHECK(tables[0].rows == 22);
      CHECK(tables[1].rows == 22);
      const int32_t first = tables[0].slots.front().row;
      CHECK((first == 0) == !linear.at(entry).ownLast);
    }
    CHECK(linear.at(EntryId{0}).ownLast != linear.at(EntryId{1}).ownLast);
  }
}

}  // namespace
}  // namespace sluice
