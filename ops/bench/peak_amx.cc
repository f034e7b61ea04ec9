#include "ops/bench/peak.h"
#include "ops/cpu/amx_tile.h"

namespace sluice::ops {

double runAmxDotPeak(int64_t loops) {
  TileUnit tiles;
  for (int64_t i = 0; i < loops; ++i) {
    tiles.multiply<0, 4, 6>();
    tiles.multiply<1, 4, 7>();
    tiles.multiply<2, 5, 6>();
    tiles.multiply<3, 5, 7>();
  }
  return static_cast<double>(loops) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace sluice::ops
