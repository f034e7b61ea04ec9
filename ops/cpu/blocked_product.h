// The blocked matrix product that all instruction sets share: it cuts m, n and k into blocks that stay in the
// caches and leaves packing to `Source` and arithmetic to `Unit`.
//
//   for blocks of at most kMc rows of c, which share one packing of b
//     for blocks of kKc of the sum
//       pack the rows of a
//       for panels of kNr columns of c
//         pack the panel of b
//         for groups of kMr rows: tile[kMr, kNr] += a group * b panel; after the last block, store the tile
//
// The sum of one element of c runs over k in the same order for all m, n and blocks, so its bits depend only
// on its row of a, its column of b, and k.
//
// Everything here has internal linkage on purpose: each including file is compiled for another instruction
// set, and the linker must never pick one copy for all of them. For the same reason nothing here calls inline
// functions of other headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// The smaller of two sizes (std::min would be shared with other files).
inline int32_t smaller(int32_t x, int32_t y) { return x < y ? x : y; }

inline int64_t roundUp(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Prefetches a cache line into the second level. In the first level it would evict data in use, and the
// second level allows more outstanding lines. Never faults.
inline void fetchSoon(const void* line) { __builtin_prefetch(line, 0, 2); }

constexpr int32_t kLineBytes = 64;
constexpr int32_t kLineOfBf16 = kLineBytes / 2;

// From this number of row groups on, a product takes so long per panel of b that software prefetches the next
// one. With fewer groups it reads panels one after another, and the hardware prefetches them.
constexpr int32_t kGroupsToFetch = 8;

// The members of a Unit, which is constructed once per product: kMr, kNr (a tile), kMc and kKc (blocks of the
// rows and of the sum), kAStride (elements between two rows of the packed a), kKUnit (both panels are padded
// with zeros to a multiple of it), Element (of the panels); for few_rows.h kFewKc, kRowsKc, kMostInPlace (the
// largest number of rows of a for which b is read in place); for columns.h optionally Square; and
//   multiply(a, b, k, rows, cols, first, tile): the first rows x cols elements of tile[kMr, kNr] += a * b
//   over the k padded elements; if `first`, the tile has no content yet.
// The members of a Source:
//   packA(row, rows, k0, k, dst): rows of a, [rows][kAStride], elements k0 to k0 + k, padded with zeros
//   readyB(col, k0): that panel of b if it was packed before; otherwise null, and then
//   sourceB(col, k0): where that panel of b begins in memory
//   fetchA(row, rows, k0): prefetches what packA will read of these rows from k0 on
//   packB(col, cols, k0, k, dst, ahead): a panel of b as Unit::multiply reads it, padded with zeros;
//   meanwhile prefetches the panel that begins at `ahead`, unless null
//   store(row, rows, col, cols, tile): the finished tile, [kMr][kNr] of fp32

template <class Unit>
struct ScratchLayout {
  static constexpr int64_t kABytes = int64_t{Unit::kMc} * Unit::kAStride * sizeof(typename Unit::Element);
  static constexpr int64_t kBBytes = int64_t{Unit::kNr} * Unit::kKc * sizeof(typename Unit::Element);
  static constexpr int64_t kTileFloats = int64_t{Unit::kMr} * Unit::kNr;
  static_assert(kABytes % 64 == 0 && kBBytes % 64 == 0 && Unit::kMc % Unit::kMr == 0 && Unit::kMc % 16 == 0);

  // With one block of the sum one tile at a time is needed; with several, the tiles of a whole block of rows.
  static size_t bytes(int32_t n, bool manyBlocks) {
    const int64_t tiles = manyBlocks ? roundUp(n, Unit::kNr) / Unit::kNr * (Unit::kMc / Unit::kMr) : 1;
    return static_cast<size_t>(kABytes + kBBytes + (tiles > 0 ? tiles : 1) * kTileFloats * 4);
  }
};

// The panel of b to pack after that of col and k0, or null.
template <class Unit, class Source>
auto nextPanel(const Source& source, int32_t col, int32_t n, int32_t k0, int32_t k, bool last)
    -> decltype(source.sourceB(0, 0)) {
  if (col + Unit::kNr < n) return source.sourceB(col + Unit::kNr, k0);
  return last ? nullptr : source.sourceB(0, k0 + k);
}

// The panel of b that is needed after that of col and k0, if it was packed before; otherwise null.
template <class Unit, class Source>
const typename Unit::Element* nextReady(const Source& source, int32_t col, int32_t n, int32_t k0, int32_t k,
                                        bool last) {
  if (col + Unit::kNr < n) return source.readyB(col + Unit::kNr, k0);
  return last ? nullptr : source.readyB(0, k0 + k);
}

// Prefetches part `part` of `parts` of the `bytes` bytes from `from` on.
inline void fetchPart(const void* from, int64_t bytes, int32_t part, int32_t parts) {
  const auto* const begin = static_cast<const char*>(from);
  const int64_t end = bytes * (part + 1) / parts;
  for (int64_t at = bytes * part / parts / kLineBytes * kLineBytes; at < end; at += kLineBytes)
    fetchSoon(begin + at);
}

// Rows [row, row + rows) against all columns, for the elements [k0, k0 + k) of the sum.
template <class Unit, class Source>
void multiplyBlock(Unit& unit, const Source& source, int32_t row, int32_t rows, int32_t n, int32_t k0,
                   int32_t k, bool last, std::byte* scratch) {
  using Element = typename Unit::Element;
  using Layout = ScratchLayout<Unit>;
  auto* const a = reinterpret_cast<Element*>(scratch);
  auto* const b = reinterpret_cast<Element*>(scratch + Layout::kABytes);
  auto* const tiles = reinterpret_cast<float*>(scratch + Layout::kABytes + Layout::kBBytes);
  const bool first = k0 == 0;
  const int64_t tileStride = first && last ? 0 : Layout::kTileFloats;
  const int32_t groups = (rows + Unit::kMr - 1) / Unit::kMr;
  if (k > 0) source.packA(row, rows, k0, k, a);  // an empty operand may be null
  for (int32_t col = 0, panel = 0; col < n; col += Unit::kNr, ++panel) {
    const int32_t cols = smaller(Unit::kNr, n - col);
    const Element* panelB = source.readyB(col, k0);
    const Element* const next =
        groups < kGroupsToFetch ? nullptr : nextReady<Unit>(source, col, n, k0, k, last);
    if (panelB == nullptr) {
      if (k > 0) source.packB(col, cols, k0, k, b, nextPanel<Unit>(source, col, n, k0, k, last));
      panelB = b;
    }
    for (int32_t group = 0; group < groups; ++group) {
      const int32_t groupRow = group * Unit::kMr;
      const int32_t groupRows = smaller(Unit::kMr, rows - groupRow);
      if (next != nullptr) fetchPart(next, int64_t{Unit::kNr} * k * sizeof(Element), group, groups);
      if (!last && col + Unit::kNr >= n) source.fetchA(row + groupRow, groupRows, k0 + k);
      float* const tile = tiles + (int64_t{panel} * groups + group) * tileStride;
      unit.multiply(a + int64_t{groupRow} * Unit::kAStride, panelB, k, groupRows, cols, first, tile);
      if (last) source.store(row + groupRow, groupRows, col, cols, tile);
    }
  }
}

// c[m, n] = a[m, k] * b[k, n]; with k == 0 it stores zeros.
template <class Unit, class Source>
void blockedProduct(const Source& source, int32_t m, int32_t n, int32_t k, void* scratch) {
  if (m <= 0 || n <= 0) return;
  Unit unit;
  const int32_t blocks = (m - 1) / Unit::kMc + 1;
  const auto blockRows = static_cast<int32_t>(roundUp((m - 1) / blocks + 1, Unit::kMr));
  for (int32_t row = 0; row < m; row += blockRows) {
    const int32_t rows = smaller(blockRows, m - row);
    int32_t k0 = 0;
    do {
      const int32_t length = smaller(Unit::kKc, k - k0);
      multiplyBlock(unit, source, row, rows, n, k0, length, k0 + length >= k,
                    static_cast<std::byte*>(scratch));
      k0 += length;
    } while (k0 < k);
  }
}

}  // namespace
}  // namespace sluice::ops
