#include "compiler/analysis/tiles.h"

#include <catch2/catch.hpp>

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

TEST_CASE("a gmm is cut along its columns") {
  const FamilyShape shape = shapeGmm(1536, 2048, true, {});
  CHECK(shape.tiles == 6);
  CHECK(shape.tiling == Tiling{0, 1536, 2048, 0, 256, 1, 0, 0});
}

TEST_CASE("a weight gradient is cut both ways") {
  const FamilyShape shape = shapeWeightGrad(768, 2050, {});
  CHECK(shape.tiles == 3 * 9);
  CHECK(shape.tiling == Tiling{768, 2050, 0, 256, 240, 0, 0, 0});
  CHECK(shapeWeightGrad(768, 2050, {}, true).tiling == Tiling{768, 2050, 0, 256, 240, 1, 0, 0});
}

TEST_CASE("the number of tiles does not wrap around") {
  CHECK(shapeWeightGrad(1 << 20, 1 << 20, {1, 1, 1}).tiles == int64_t{1} << 40);
}

TEST_CASE("an activation carries its kind and limit") {
  CHECK(shapeActivation(768, {2, 0}).tiling == Tiling{0, 768, 0, 0, 0, 2, 0, 0});
  CHECK(shapeActivation(768, {1, 7}).tiling == Tiling{0, 768, 0, 0, 0, 0x40e00001, 0, 0});
}

TEST_CASE("a fused gmm has tiles of the activation, and one tile where it sums over whole rows") {
  const FamilyShape shape = shapeGmmActivation(768, 2048, true, {1, 7}, {});
  CHECK(shape.tiles == 6);
  CHECK(shape.tiling == Tiling{0, 768, 2048, 0, 128, 0x40e00005, 0, 0});
  const FamilyShape grad = shapeGmmActivationGrad(768, 2048, false, {2, 0}, false, {});
  CHECK(grad.tiles == 3);
  CHECK(grad.tiling == Tiling{0, 768, 2048, 0, 256, 2, 0, 0});
  const FamilyShape whole = shapeGmmActivationGrad(770, 2048, false, {}, true, {});
  CHECK(whole.tiles == 1);
  CHECK(whole.tiling.tileN == 770);
}

TEST_CASE("a factor of 1 is not written down") {
  CHECK(shapeGmm(16, 16, false, {}, 1).tiling.alpha == 0);
  CHECK(shapeGmm(16, 16, false, {}, 0.5F).tiling.alpha == 0.5F);
  CHECK(shapeWeightGrad(16, 16, {}, false, -2).tiling.alpha == -2);
  CHECK(shapeScale(16, 3).tiling == Tiling{0, 16, 0, 0, 0, 0, 3, 0});
  CHECK(shapeScale(16, 1).tiling.alpha == 0);
}

TEST_CASE("row families have one tile") {
  CHECK(shapeRows(2048, 8).tiles == 1);
  CHECK(shapeRows(2048, 8).tiling == Tiling{0, 2048, 8, 0, 0, 0, 0, 0});
}

}  // namespace
}  // namespace sluice
