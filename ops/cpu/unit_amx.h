// The AMX units: 32 x 32 elements of the result in four tiles, two of a and two of b, 64 bytes of the sum per
// step. Smaller edges use one row or one column of tiles. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/amx_tile.h"
#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

// Pairs of bf16 with sums in fp32, or four codes with sums in int32.
template <class E, class S>
struct UnitAmxOf {
  using Element = E;
  using Sum = S;
  static constexpr int32_t kMr = 32;
  static constexpr int32_t kNr = 32;
  // packed rows of a: 1 MiB in a second cache level of 2 MiB
  static constexpr int32_t kMc = 256;
  static constexpr int32_t kKUnit = kTileRowBytes / sizeof(E);
  static constexpr int32_t kKc = 64 * kKUnit;
  // the panel of b stays in a first cache level of 48 KiB, next to the rows of a and the tiles
  static constexpr int32_t kKPart = 8 * kKUnit;
  static constexpr int32_t kAStride =
      kKPart + kKUnit;  // not a power of two, with which the 16 rows of a tile would share a cache set
  static constexpr int32_t kSumsAt = kKPart;  // where groups.h has sums of a row
  static constexpr int32_t kFetchEvery = kKUnit / 4;
  static constexpr int32_t kFewKc = kKPart;
  static constexpr bool kShiftsCodes = false;
  static constexpr int32_t kRowsKc = 32;

  void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                Sum* tile, Ahead& ahead) {
    const int32_t steps = (k + kKUnit - 1) / kKUnit;
    if (rows > 16)
      cols > 16 ? sized<true, true>(a, b, steps, first, tile, ahead)
                : sized<true, false>(a, b, steps, first, tile, ahead);
    else
      cols > 16 ? sized<false, true>(a, b, steps, first, tile, ahead)
                : sized<false, false>(a, b, steps, first, tile, ahead);
  }

 private:
  static constexpr int64_t kTileStride = kNr * 4;

  // Tiles 0 to 3: the result, by row and column; 4, 5: a; 6, 7: b.
  template <bool kTwoRows, bool kTwoColumns>
  void sized(const Element* a, const Element* b, int32_t steps, bool first, Sum* tile, Ahead& ahead) {
    Sum* const lower = tile + 16 * kNr;
    start<0>(first, tile);
    if constexpr (kTwoColumns) start<1>(first, tile + 16);
    if constexpr (kTwoRows) start<2>(first, lower);
    if constexpr (kTwoRows && kTwoColumns) start<3>(first, lower + 16);
    for (int32_t s = 0; s < steps; ++s, a += kKUnit, b += kKUnit * kNr) {
      tiles_.load<6>(b, kNr * 4);
      tiles_.load<4>(a, kAStride * sizeof(E));
      if constexpr (kTwoColumns) tiles_.load<7>(b + kKUnit, kNr * 4);
      if constexpr (kTwoRows) tiles_.load<5>(a + 16 * kAStride, kAStride * sizeof(E));
      tiles_.multiply<E, 0, 4, 6>();
      ahead.fetch();
      if constexpr (kTwoColumns) tiles_.multiply<E, 1, 4, 7>();
      ahead.fetch();
      if constexpr (kTwoRows) tiles_.multiply<E, 2, 5, 6>();
      ahead.fetch();
      if constexpr (kTwoRows && kTwoColumns) tiles_.multiply<E, 3, 5, 7>();
      ahead.fetch();
    }
    tiles_.store<0>(tile, kTileStride);
    if constexpr (kTwoColumns) tiles_.store<1>(tile + 16, kTileStride);
    if constexpr (kTwoRows) tiles_.store<2>(lower, kTileStride);
    if constexpr (kTwoRows && kTwoColumns) tiles_.store<3>(lower + 16, kTileStride);
  }

  template <int kTile>
  void start(bool first, const Sum* tile) {
    if (first)
      tiles_.zero<kTile>();
    else
      tiles_.load<kTile>(tile, kTileStride);
  }

  TileUnit tiles_;
};

using UnitAmx = UnitAmxOf<uint16_t, float>;
using UnitAmxCodes = UnitAmxOf<int8_t, int32_t>;

}  // namespace
}  // namespace sluice::ops
