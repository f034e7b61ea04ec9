#include "compiler/analysis/tiles.h"

#include <catch2/catch.hpp>

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
  CHECK(tiling == Tiling{0, 1536, 2048, 0, 256, 1, 0.5F});
  CHECK(tilesOf(OpKind::kGmm, tiling) == 6);
}

TEST_CASE("a weight gradient is cut both ways") {
  const Tiling tiling = cut(OpKind::kGmmWeightGrad, {.m = 768, .n = 2050});
  CHECK(tiling == Tiling{768, 2050, 0, 256, 240});
  CHECK(tilesOf(OpKind::kGmmWeightGrad, tiling) == 3 * 9);
}

TEST_CASE("the number of tiles does not wrap around") {
  const Tiling tiling = cut(OpKind::kGmmWeightGrad, {.m = 1 << 20, .n = 1 << 20}, false, {1, 1, 1});
  CHECK(tilesOf(OpKind::kGmmWeightGrad, tiling) == int64_t{1} << 40);
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
  for (OpKind op : {OpKind::kDispatch, OpKind::kActivation, OpKind::kCombineSum, OpKind::kScale}) {
    CHECK(cut(op, {.n = 2048, .k = 8}) == Tiling{0, 2048, 8});
    CHECK(tilesOf(op, {.n = 2048, .k = 8}) == 1);
  }
}

}  // namespace
}  // namespace sluice
