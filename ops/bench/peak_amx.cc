#include "ops/bench/peak.h"
#include "ops/cpu/amx_tile.h"

namespace sluice::ops {

namespace {

template <class Element>
double runTiles(int64_t loops) {
  TileUnit tiles;
  for (int64_t i = 0; i < loops; ++i) {
    tiles.multiply<Element, 0, 4, 6>();
    tiles.multiply<Element, 1, 4, 7>();
    tiles.multiply<Element, 2, 5, 6>();
    tiles.multiply<Element, 3, 5, 7>();
  }
  return static_cast<double>(loops) * 4 * 16 * 16 * 2 * (kTileRowBytes / sizeof(Element));
}

}  // namespace

double runAmxDotPeak(int64_t loops) { return runTiles<uint16_t>(loops); }
double runAmxCodesPeak(int64_t loops) { return runTiles<int8_t>(loops); }

}  // namespace sluice::ops
