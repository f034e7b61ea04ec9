// The arithmetic of tiles.
#include "ops/combine/tiling.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "ops/add/tiling.h"
#include "ops/dispatch/tiling.h"
#include "ops/gmm/tiling.h"
#include "ops/gmm_activation/tiling.h"
#include "ops/gmm_weight_grad/tiling.h"
#include "ops/scale/tiling.h"

namespace sluice::ops {
namespace {

TEST_CASE("an equal tile covers the length in the fewest tiles and is a multiple of the unit") {
  for (int32_t length : {1, 15, 16, 17, 100, 768, 1536, 2048, 7168})
    for (int32_t largest : {1, 16, 100, 256, 512})
      for (int32_t unit : {1, 16, 32}) {
        const int32_t tile = equalTile(length, largest, unit);
        const int32_t bound = std::max(unit, largest / unit * unit);
        INFO(length << " by " << largest << " unit " << unit);
        CHECK(tile % unit == 0);
        CHECK(tile <= bound);
        CHECK(tileCount(length, tile) == tileCount(length, bound));
      }
  CHECK(equalTile(768, 512, 16) == 384);
  CHECK(equalTile(0, 512, 16) == 16);
  CHECK(equalTile(std::numeric_limits<int32_t>::max(), 1024, 16) == 1024);
}

TEST_CASE("the column tiles of a gmm lie side by side and end with the columns") {
  const Tiling tiling = {.n = 100, .k = 8, .tileN = 48, .flags = kGmmTransposedWeight};
  CHECK(gmmTransposed(tiling));
  CHECK(!gmmTransposed(Tiling{}));
  REQUIRE(gmmTiles(tiling) == 3);
  CHECK(gmmTileColumns(tiling, 0) == TileRange{0, 48});
  CHECK(gmmTileColumns(tiling, 2) == TileRange{96, 100});
}

TEST_CASE("the tiles of a fused gmm are ranges of columns of act") {
  const Tiling tiling = {.n = 100, .k = 8, .tileN = 48, .flags = kFusedTransposedWeight};
  CHECK(fusedTransposed(tiling));
  CHECK(!fusedTransposed(Tiling{.flags = 3}));
  REQUIRE(fusedTiles(tiling) == 3);
  CHECK(fusedTileColumns(tiling, 1) == TileRange{48, 96});
  CHECK(fusedTileColumns(tiling, 2) == TileRange{96, 100});
}

TEST_CASE("an alpha of 0 is none: the factor is 1") {
  CHECK(alphaOf(Tiling{}) == 1);
  CHECK(alphaOf(Tiling{.alpha = -0.5f}) == -0.5f);
}

TEST_CASE("the tiles of a weight gradient run along n first") {
  const Tiling tiling = {.m = 70, .n = 100, .tileM = 32, .tileN = 48};
  REQUIRE(weightGradTiles(tiling) == 9);
  CHECK(weightGradTile(tiling, 1).m == TileRange{0, 32});
  CHECK(weightGradTile(tiling, 1).n == TileRange{48, 96});
  CHECK(weightGradTile(tiling, 8).m == TileRange{64, 70});
  CHECK(weightGradTile(tiling, 8).n == TileRange{96, 100});
}

TEST_CASE("a tiling without tile lengths has no tiles, and row-wise ops have one") {
  CHECK(gmmTiles(Tiling{.n = 100}) == 0);
  CHECK(weightGradTiles(Tiling{.m = 5, .n = 100, .tileN = 5}) == 0);
  CHECK(dispatchTiles(Tiling{}) == 1);
  CHECK(combineReturnTiles(Tiling{}) == 1);
  CHECK(combineSumTiles(Tiling{}) == 1);
  CHECK(addTiles(Tiling{}) == 1);
  CHECK(scaleTiles(Tiling{}) == 1);
}

}  // namespace
}  // namespace sluice::ops
