// The AMX unit: 32 x 32 elements of the result in four tiles, two of a and two of b, 32 elements of the sum
// per step. Smaller edges use one row or one column of tiles. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/amx_tile.h"
#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

struct UnitAmx {
  using Element = uint16_t;
  static constexpr int32_t kMr = 32;
  static constexpr int32_t kNr = 32;
  static constexpr int32_t kMc = 384;
  // the panel of b stays in a first cache level of 48 KiB, next to the rows of a and the tiles
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride =
      kKc + 32;  // not a power of two, with which the 16 rows of a tile would share a cache set
  static constexpr int32_t kKUnit = 32;
  static constexpr int32_t kFewKc = 256;
  static constexpr int32_t kRowsKc = 0;  // reads packed panels only

  void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                float* tile) {
    const int32_t steps = (k + kKUnit - 1) / kKUnit;
    if (rows > 16)
      cols > 16 ? sized<true, true>(a, b, steps, first, tile) : sized<true, false>(a, b, steps, first, tile);
    else
      cols > 16 ? sized<false, true>(a, b, steps, first, tile)
                : sized<false, false>(a, b, steps, first, tile);
  }

 private:
  static constexpr int64_t kTileStride = kNr * 4;

  // Tiles 0 to 3: the result, by row and column; 4, 5: a; 6, 7: b.
  template <bool kTwoRows, bool kTwoColumns>
  void sized(const Element* a, const Element* b, int32_t steps, bool first, float* tile) {
    float* const lower = tile + 16 * kNr;
    start<0>(first, tile);
    if constexpr (kTwoColumns) start<1>(first, tile + 16);
    if constexpr (kTwoRows) start<2>(first, lower);
    if constexpr (kTwoRows && kTwoColumns) start<3>(first, lower + 16);
    for (int32_t s = 0; s < steps; ++s, a += kKUnit, b += kKUnit * kNr) {
      tiles_.load<4>(a, kAStride * 2);
      tiles_.load<6>(b, kNr * 4);
      tiles_.multiply<0, 4, 6>();
      if constexpr (kTwoColumns) {
        tiles_.load<7>(b + 32, kNr * 4);
        tiles_.multiply<1, 4, 7>();
      }
      if constexpr (kTwoRows) {
        tiles_.load<5>(a + 16 * kAStride, kAStride * 2);
        tiles_.multiply<2, 5, 6>();
      }
      if constexpr (kTwoRows && kTwoColumns) tiles_.multiply<3, 5, 7>();
    }
    tiles_.store<0>(tile, kTileStride);
    if constexpr (kTwoColumns) tiles_.store<1>(tile + 16, kTileStride);
    if constexpr (kTwoRows) tiles_.store<2>(lower, kTileStride);
    if constexpr (kTwoRows && kTwoColumns) tiles_.store<3>(lower + 16, kTileStride);
  }

  template <int kTile>
  void start(bool first, const float* tile) {
    if (first)
      tiles_.zero<kTile>();
    else
      tiles_.load<kTile>(tile, kTileStride);
  }

  TileUnit tiles_;
};

}  // namespace
}  // namespace sluice::ops
