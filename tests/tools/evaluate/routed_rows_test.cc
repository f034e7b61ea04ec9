#include "tools/evaluate/routed_rows.h"

#include <catch2/catch.hpp>

namespace sluice::tools {
namespace {

TaskProgram layerOf(Mesh mesh, int experts) {
  TaskProgram program;
  program.mesh = mesh;
  program.experts = experts;
  program.topK = 2;
  return program;
}

Values idsOf(std::vector<double> ids) { return {{std::ssize(ids) / 2, 2}, std::move(ids)}; }

Expected<std::vector<RankRows>> routed(const TaskProgram& program, const std::vector<Values>& ids) {
  std::vector<const Values*> pointers;
  for (const Values& each : ids) pointers.push_back(&each);
  return routeRows(program, pointers);
}

using Rows = std::vector<std::pair<int, int64_t>>;  // source, pair

Rows rowsOf(const RankRows& rank) {
  Rows rows;
  for (const RoutedRow& row : rank.rows) rows.emplace_back(row.source, row.pair);
  return rows;
}

TEST_CASE("rows are stored by expert, then by source, then by token") {
  const auto ranks = routed(layerOf({.ep = 2}, 3), {idsOf({2, 1, 0, -1}), idsOf({1, 2})});
  CHECK(rowsOf((*ranks)[0]) == Rows{{0, 2}, {0, 1}, {1, 0}});
  CHECK((*ranks)[0].expertBegin == std::vector<int64_t>{0, 1, 3});
  CHECK(rowsOf((*ranks)[1]) == Rows{{0, 0}, {1, 1}});
  CHECK((*ranks)[1].expertBegin == std::vector<int64_t>{0, 2});
}

TEST_CASE("ranks that share experts all get the rows of all ranks, if these have tokens of their own") {
  const TaskProgram program = layerOf({.ep = 2, .tp = 2, .tokens = TokenHolders::kOwn}, 2);
  const auto ranks = routed(program, {idsOf({0, 1}), idsOf({}), idsOf({1, -1}), idsOf({-1, 0})});
  for (size_t rank : {0, 1}) CHECK(rowsOf((*ranks)[rank]) == Rows{{0, 0}, {3, 1}});
  for (size_t rank : {2, 3}) CHECK(rowsOf((*ranks)[rank]) == Rows{{0, 1}, {2, 0}});
  CHECK(returnsTo(program, 2, 2));
  CHECK_FALSE(returnsTo(program, 2, 3));
}

TEST_CASE("of ranks that have the same tokens, each sends to its shard and all get the results") {
  const TaskProgram program = layerOf({.ep = 2, .tp = 2, .tokens = TokenHolders::kSame}, 2);
  const auto ranks = routed(program, {idsOf({0, 1}), idsOf({0, 1}), idsOf({1, -1}), idsOf({1, -1})});
  CHECK(rowsOf((*ranks)[0]) == Rows{{0, 0}});
  CHECK(rowsOf((*ranks)[1]) == Rows{{1, 0}});
  CHECK(rowsOf((*ranks)[2]) == Rows{{0, 1}, {2, 0}});
  CHECK(rowsOf((*ranks)[3]) == Rows{{1, 1}, {3, 0}});
  CHECK(returnsTo(program, 2, 3));
  CHECK_FALSE(returnsTo(program, 2, 1));
  CHECK(routed(program, {idsOf({0, 1}), idsOf({0, 1}), idsOf({1, -1}), idsOf({0, -1})}).error().message ==
        "rank 3: found other expert ids than at rank 2, expected the same tokens at the ranks of a group");
}

}  // namespace
}  // namespace sluice::tools
