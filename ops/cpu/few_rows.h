// Products of few rows. Reading b from memory takes most of their time, so b is used block by block from the
// first cache level while the next blocks are prefetched. The sums run in the order of blocked_product.h, so
// both give the same bits.
//
// If b is [k, n] and the Unit reads that faster than panels (rowsOfBInPlace), it is not packed:
//
//   for blocks of rowsOfBInPlace of the sum
//     for panels of kNr columns of c
//       for groups of rows: tile += a group * (b in place); after the last block, store the tile
//
// and by Strips:
//
//   for strips of columns of c
//     for some rows of b
//       for tiles of kColumns columns: tile += those elements of all rows of a * the rows of b in place
//   store the tiles
//
// A transposed b is not packed either if the Unit has a Square: see columns.h.
//
// Otherwise panels are packed, a few elements of the sum at a time, so that they are read back from the first
// cache level. If b is [k, n], it is read in runs of its rows:
//
//   for blocks of kRowsKc of the sum
//     pack the block of a
//     for panels of kNr columns of c
//       pack the block of b; tile += a * b block; after the last block, store the tile
//
// If b is transposed:
//
//   pack all of a
//   for panels of kNr columns of c
//     for blocks of kFewKc of the sum
//       pack the block of b
//       for groups of rows: tile += a group * b block; after the last block, store the tile
//
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/columns.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/way.h"

namespace sluice::ops {
namespace {

// Elements of the sum by which panels to pack are prefetched ahead of their use.
constexpr int32_t kFewAhead = 64;

template <class Unit>
struct FewRowsLayout {
  using Element = typename Unit::Element;
  static_assert(Unit::kKPart % Unit::kFewKc == 0 && Unit::kFewKc % Unit::kKUnit == 0 && kFewRows % 16 == 0);
  static constexpr int32_t kGroups = (kFewRows + Unit::kMr - 1) / Unit::kMr;
  static constexpr int64_t kTileFloats = int64_t{Unit::kMr} * Unit::kNr;
  static constexpr int64_t kBBytes = int64_t{Unit::kNr} * Unit::kFewKc * sizeof(PanelElement<Unit>);
  static constexpr int64_t kABlock = elementsOfA<Unit>(kFewRows);  // for kKPart of the sum
  static_assert(kBBytes % 64 == 0 && kABlock * sizeof(Element) % 64 == 0 && kTileFloats * 4 % 64 == 0);

  // Scratch: the tiles, then a block of b, then a.
  static int64_t tileBytes(int32_t n) {
    return roundUp(n, Unit::kNr) / Unit::kNr * kGroups * kTileFloats * 4;
  }
  static size_t bytes(int32_t n, int32_t k) {
    const int64_t blocks = roundUp(k, Unit::kKPart) / Unit::kKPart;
    return static_cast<size_t>(tileBytes(n) + kBBytes + blocks * kABlock * sizeof(Element));
  }
};

template <ReadsRowsInPlace Unit, class Source>
void productInPlace(const Source& source, int32_t m, int32_t n, int32_t k, int32_t rowsAtOnce, float* tiles) {
  const int32_t groups = (m - 1) / Unit::kMr + 1;
  const int32_t most = (m - 1) / groups + 1;
  int32_t k0 = 0;
  do {
    const int32_t length = smaller(rowsAtOnce, k - k0);
    const bool last = k0 + length >= k;
    for (int32_t col = 0; col < n; col += Unit::kNr) {
      const int32_t cols = smaller(Unit::kNr, n - col);
      float* tile = tiles + int64_t{col} * m;  // no gaps: all stay in the first cache level
      for (int32_t row = 0; row < m; row += most, tile += most * Unit::kNr) {
        const int32_t rows = smaller(most, m - row);
        Unit::multiplyRows(source, row, rows, col, cols, k0, length, last, tile);
        if (last) source.store(row, rows, col, cols, tile);
      }
    }
    k0 += length;
  } while (k0 < k);
}

template <class Strips, class Source>
void productByStrips(const Source& source, int32_t m, int32_t n, int32_t k, float* tiles) {
  constexpr int32_t kColumns = Strips::kColumns;
  Strips::multiply(source, m, n, k, tiles);
  for (int32_t col = 0; col < n; col += kColumns)
    source.store(0, m, col, smaller(kColumns, n - col), tiles + int64_t{col} * m);
}

template <MultipliesPanels Unit, PacksPanels<Unit> Source>
void productByBlocks(const Source& source, int32_t m, int32_t n, int32_t k, std::byte* scratch) {
  using Element = typename Unit::Element;
  using Layout = FewRowsLayout<Unit>;
  using B = std::remove_cvref_t<decltype(*source.sourceB(0, 0))>;
  // Elements of the sum after which columns of a transposed b begin new cache lines, to be prefetched.
  constexpr int32_t kLine = kLineBytes / sizeof(B) * kPerElement<B>;
  const int32_t line = source.liesTransposed() ? kLine : kFewAhead / 2;
  Unit unit;
  Ahead fetched;  // none: packing prefetches
  auto* const tiles = reinterpret_cast<float*>(scratch);
  auto* const b = reinterpret_cast<PanelElement<Unit>*>(scratch + Layout::tileBytes(n));
  auto* const a = reinterpret_cast<Element*>(scratch + Layout::tileBytes(n) + Layout::kBBytes);
  // no gap for missing rows, because blocks of a power of two would share sets of the cache
  const int64_t aBlock = elementsOfA<Unit>(m);
  for (int32_t k0 = 0; k0 < k; k0 += Unit::kKPart)
    source.packA(0, m, k0, smaller(Unit::kKPart, k - k0), a + k0 / Unit::kKPart * aBlock);
  for (int32_t col = 0; col < n; col += Unit::kNr) {
    const int32_t cols = smaller(Unit::kNr, n - col);
    int32_t k0 = 0;
    do {
      const int32_t length = smaller(Unit::kFewKc, k - k0);
      const bool last = k0 + length >= k;
      const int32_t later = k0 + 2 * line;  // memory beyond the end of a panel belongs to the next one
      const B* const ahead = k0 % line != 0 ? nullptr
                             : later < k    ? source.sourceB(col, later)
                                            : source.sourceB(col + Unit::kNr, later - k);
      if (length > 0) source.packB(col, cols, k0, length, b, ahead);
      const Element* const block = a + k0 / Unit::kKPart * aBlock;
      for (int32_t row = 0; row < m; row += Unit::kMr) {
        float* const tile = tiles + row / Unit::kMr * Layout::kTileFloats;
        const int32_t rows = smaller(Unit::kMr, m - row);
        unit.multiply(block + offsetInA<Unit>(row, k0 % Unit::kKPart), b, length, rows, cols, k0 == 0, tile,
                      fetched);
        if (last) source.store(row, rows, col, cols, tile);
      }
      k0 += length;
    } while (k0 < k);
  }
}

template <MultipliesPanels Unit, PacksPanels<Unit> Source>
void productByRows(const Source& source, int32_t m, int32_t n, int32_t k, std::byte* scratch) {
  using Element = typename Unit::Element;
  using Layout = FewRowsLayout<Unit>;
  static_assert(Unit::kRowsKc <= Unit::kFewKc && kFewRows <= Unit::kMr);
  Unit unit;
  Ahead fetched;  // none: packing prefetches
  auto* const tiles = reinterpret_cast<float*>(scratch);
  auto* const b = reinterpret_cast<PanelElement<Unit>*>(scratch + Layout::tileBytes(n));
  auto* const a = reinterpret_cast<Element*>(scratch + Layout::tileBytes(n) + Layout::kBBytes);
  int32_t k0 = 0;
  do {
    const int32_t length = smaller(Unit::kRowsKc, k - k0);
    if (length > 0) source.packA(0, m, k0, length, a);
    for (int32_t col = 0; col < n; col += Unit::kNr) {
      const int32_t cols = smaller(Unit::kNr, n - col);
      float* const tile = tiles + col / Unit::kNr * Layout::kGroups * Layout::kTileFloats;
      if (length > 0) source.packB(col, cols, k0, length, b, source.sourceB(col, k0 + kFewAhead));
      unit.multiply(a, b, length, m, cols, k0 == 0, tile, fetched);
      if (k0 + length >= k) source.store(0, m, col, cols, tile);
    }
    k0 += length;
  } while (k0 < k);
}

}  // namespace
}  // namespace sluice::ops
