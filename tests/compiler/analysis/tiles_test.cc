#include "compiler/analysis/tiles.h"

#include <catch2/catch.hpp>
#include <utility>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

TEST_CASE("even tiles cover the length, keep the limit and leave no sliver") {
  for (int32_t most : {1, 7, 16, 100, 256})
    for (int32_t length = 1; length < 1100; ++length) {
      const int32_t tile = evenTile(length, most);
      REQUIRE(tile >= 1);
      REQUIRE(tile <= most);
      const int32_t largest = most < 16 ? most : most / 16 * 16;
      REQUIRE(ceilDiv(length, tile) <= ceilDiv(length, largest));
      REQUIRE((tile % 16 == 0 || most < 16 || tile == length));
      REQUIRE(ceilDiv(length, tile) * tile - length < tile);
    }
  CHECK(evenTile(300, 256) == 160);
  CHECK(evenTile(1536, 256) == 256);
}

Tiling cut(OpKind op, Tiling tiling, bool wholeRows = false, const TileSizes& sizes = {}) {
  cutTiles(op, wholeRows, sizes, tiling);
  return tiling;
}

TEST_CASE("a gmm is cut along its columns") {
  const Tiling tiling = cut(OpKind::kGmm, {.n = 1536, .k = 2048, .flags = 1, .alpha = 0.5F});
  CHECK(tiling == Tiling{.n = 1536, .k = 2048, .tileN = 256, .flags = 1, .alpha = 0.5F});
  CHECK(countTiles(OpKind::kGmm, tiling) == 6);
}

TEST_CASE("a weight gradient is cut both ways") {
  const Tiling tiling = cut(OpKind::kGmmWeightGrad, {.m = 768, .n = 2050});
  CHECK(tiling == Tiling{768, 2050, 0, 256, 240});
  CHECK(countTiles(OpKind::kGmmWeightGrad, tiling) == 3 * 9);
}

TEST_CASE("a column sum is cut like the columns of a product") {
  const Tiling tiling = cut(OpKind::kColumnSum, {.n = 1536});
  CHECK(tiling.tileN == 256);
  CHECK(countTiles(OpKind::kColumnSum, tiling) == 6);
}

TEST_CASE("the number of tiles does not wrap around") {
  const Tiling tiling = cut(OpKind::kGmmWeightGrad, {.m = 1 << 20, .n = 1 << 20}, false, {1, 1, 1});
  CHECK(countTiles(OpKind::kGmmWeightGrad, tiling) == int64_t{1} << 40);
}

TEST_CASE("a fused gmm has tiles of the activation, and one tile where it sums over whole rows") {
  CHECK(cut(OpKind::kGmmActivation, {.n = 768, .k = 2048}).tileN == 128);
  CHECK(cut(OpKind::kGmmActivationGrad, {.n = 768, .k = 2048}).tileN == 256);
  CHECK(cut(OpKind::kGmmActivationGrad, {.n = 770, .k = 2048}, true).tileN == 770);
}

TEST_CASE("a fused gmm keeps tiles of 16 columns where those of a gmm have fewer than 32") {
  CHECK(cut(OpKind::kGmmActivation, {.n = 768}, false, {.gmmColumns = 24}).tileN == 16);
  CHECK(cut(OpKind::kGmmActivation, {.n = 768}, false, {.gmmColumns = 8}).tileN == 8);
}

TEST_CASE("what is not a product has one tile") {
  for (OpKind op :
       {OpKind::kDispatch, OpKind::kActivation, OpKind::kCombineSum, OpKind::kScale, OpKind::kRowDot}) {
    CHECK(cut(op, {.n = 2048, .k = 8}) == Tiling{0, 2048, 8});
    CHECK(countTiles(op, {.n = 2048, .k = 8}) == 1);
  }
}

TaskProgram twoFamilies() {
  TaskProgram program;
  for (SpaceKind kind : {SpaceKind::kTokens, SpaceKind::kRows, SpaceKind::kSends, SpaceKind::kReturns,
                         SpaceKind::kExperts, SpaceKind::kOnce, SpaceKind::kGroups})
    program.spaces.push_back({"", kind, kind == SpaceKind::kGroups ? 96 : 1, 1});
  Family product, grad;
  product.name = "up";
  product.space = SpaceId{1};
  product.source = "a.json:3:5";
  product.tiling = {.n = 1536, .k = 64};
  grad.name = "grad";
  grad.op = OpKind::kGmmWeightGrad;
  grad.space = SpaceId{4};
  grad.source = "a.json:8:5";
  grad.tiling = {.m = 1 << 20, .n = 1 << 20};
  program.families = {product, grad};
  return program;
}

TEST_CASE("a program is cut into slots, windows and tiles, groups as many rows a window as slots") {
  const Expected<TaskProgram> cut =
      cutTasks(twoFamilies(), {48, 8, {256, 1 << 19, 1 << 20}}, {4, 8, 16, 17, 2});
  if (!cut) FAIL(cut.error().message);
  const std::vector<std::pair<int32_t, int32_t>> expected = {{8, 4}, {48, 8}, {48, 16}, {48, 17},
                                                             {1, 2}, {1, 1},  {96, 4}};
  for (size_t s = 0; s < expected.size(); ++s) {
    CHECK(cut->spaces[s].slotSize == expected[s].first);
    CHECK(cut->spaces[s].window == expected[s].second);
  }
  CHECK(cut->families[0].tiles == 6);
  CHECK(cut->families[0].tiling.tileN == 256);
  CHECK(cut->families[1].tiles == 2);
}

TEST_CASE("families of too many tiles are named with their places, all of them") {
  const Expected<TaskProgram> one = cutTasks(twoFamilies(), {16, 8, {1, 1, 1}}, {});
  REQUIRE_FALSE(one);
  CHECK(one.error().message ==
        "a.json:8:5: error: node 'grad' has 1099511627776 tiles, expected at most 1048576: choose larger "
        "tiles");
  TaskProgram wide = twoFamilies();
  wide.families[0] = wide.families[1];
  const Expected<TaskProgram> both = cutTasks(wide, {16, 8, {1, 1, 1}}, {});
  REQUIRE_FALSE(both);
  CHECK(both.error().message == one.error().message + "\n" + one.error().message);
}

}  // namespace
}  // namespace sluice
