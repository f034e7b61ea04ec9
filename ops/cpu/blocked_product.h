// The blocked matrix product that all instruction sets share: it cuts m, n and k into blocks that stay in the
// caches and leaves packing to `Source` and arithmetic to `Unit`.
//
//   for blocks of at most kMc rows of c, which share one packing of b
//     for blocks of kKc of the sum, or all of it (see sumOfBlock)
//       for panels of kNr columns of c
//         for parts of kKPart of the block of the sum
//           pack that part of the panel of b, if that was not done meanwhile; widen it for many groups
//           for groups of kMr rows:
//             for the first panel, pack that part of the rows of a, of one or several groups
//             tile[kMr, kNr] += a group * b panel; after the last part, store the tile
//
// A part of a panel stays in the first cache level, or in the second; meanwhile the Unit prefetches or packs
// the next part, a little at a time. The packed a stays in the second level.
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

#include "ops/cpu/ahead.h"
#include "ops/cpu/unit.h"
#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// The smaller of two sizes (std::min would be shared with other files).
constexpr int32_t smaller(int32_t x, int32_t y) { return x < y ? x : y; }

constexpr int64_t roundUp(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Rows [row, row + rows) of m against all n columns, for the elements [k0, k0 + k) of the sum, which may be
// the last ones.
struct Block {
  int32_t row, rows, m, n, k0, k;
  bool last;
};

// Returns the number of columns of the panel that begins at column `col`, of n in all.
template <class Unit, class Source>
int32_t columnsFrom(const Source& source, int32_t col, int32_t n) {
  if constexpr (CountsColumns<Source>)
    return source.columnsFrom(col);
  else
    return smaller(Unit::kNr, n - col);
}

// The lines of the tile of `c` that is stored after the tile of the row group at `from` in the panel at
// `col`: the next tile of this panel, else the first tile of the next panel.
template <class Unit, class Source>
Lines nextOfC(const Source& source, const Block& block, int32_t from, int32_t col) {
  if (from + Unit::kMr < block.rows)
    from += Unit::kMr;
  else if (col + Unit::kNr < block.n)
    from = 0, col += Unit::kNr;
  else
    return {};
  return source.linesC(block.row + from, smaller(Unit::kMr, block.rows - from), col,
                       columnsFrom<Unit>(source, col, block.n));
}

// What is packed of a after the rows from `from` on for the part of the sum that begins at `at`: by the
// first panel, and after the last one by the next block.
template <class Unit, class Source>
Lines nextOfA(const Source& source, const Block& block, int32_t from, int32_t col, int32_t at) {
  const auto lines = [&](int32_t row, int32_t end, int32_t k0) {
    return row < end ? source.linesA(row, smaller(Source::kRowsAtOnce, end - row), k0) : Lines();
  };
  const int32_t next = from + Source::kRowsAtOnce, part = at + Unit::kKPart, end = block.row + block.rows;
  if (col == 0 && next < block.rows) return lines(block.row + next, end, block.k0 + at);
  if (col == 0 && part < block.k) return lines(block.row, end, block.k0 + part);
  if (next < block.rows || part < block.k || col + Unit::kNr < block.n) return {};
  return block.last ? lines(end, block.m, 0) : lines(block.row, end, block.k0 + block.k);
}

// Returns the bytes of a packed part of a panel of b.
template <class Unit>
constexpr int64_t panelBytes() {
  if constexpr (HasPanelBytes<Unit>)
    return Unit::kPanelBytes;
  else
    return int64_t{Unit::kNr} * Unit::kKPart * sizeof(PanelElement<Unit>);
}

// The place of an element of the packed a. The next elements of its row follow; where groups are interleaved,
// each follows kMr elements later.
template <class Unit>
constexpr int64_t offsetInA(int32_t row, int32_t element) {
  if constexpr (InterleavesRows<Unit>)
    return int64_t{row - row % Unit::kMr} * Unit::kAStride + element * Unit::kMr + row % Unit::kMr;
  else
    return int64_t{row} * Unit::kAStride + element;
}

// The elements of so many packed rows, in whole groups if these are interleaved.
template <class Unit>
constexpr int64_t elementsOfA(int32_t rows) {
  return (InterleavesRows<Unit> ? roundUp(rows, Unit::kMr) : rows) * Unit::kAStride;
}

template <class Unit>
constexpr int64_t wideBytes() {
  if constexpr (WidensPanels<Unit>)
    return int64_t{Unit::kNr} * Unit::kKPart * sizeof(typename Unit::Element);
  else
    return 0;
}

template <class Unit>
struct ScratchLayout {
  static constexpr int32_t kParts = Unit::kKc / Unit::kKPart;
  static constexpr int64_t kABytes =
      int64_t{Unit::kMc} * kParts * Unit::kAStride * sizeof(typename Unit::Element);
  static constexpr int64_t kPanelBytes = panelBytes<Unit>();
  static constexpr int64_t kBBytes = (PacksNextPanel<Unit> ? 2 : 1) * kPanelBytes;
  static constexpr int64_t kWideBytes = wideBytes<Unit>();
  static constexpr int64_t kTileSums = int64_t{Unit::kMr} * Unit::kNr;
  static constexpr int64_t kWideAt = kABytes + kBBytes, kTilesAt = kWideAt + kWideBytes;
  static_assert(sizeof(typename Unit::Sum) == 4 && Unit::kKc % Unit::kKPart == 0);
  static_assert(kABytes % 64 == 0 && kPanelBytes % 64 == 0 && kWideBytes % 64 == 0 &&
                Unit::kMc % Unit::kMr == 0 && Unit::kMc % 16 == 0);

  // If the sum has one part, one tile at a time is needed; if it has several parts, the tiles of a panel of
  // columns; if it has several blocks, the tiles of all panels.
  static size_t bytes(int32_t n, int32_t k) {
    const int64_t panels = k > Unit::kKc && n > 0 ? roundUp(n, Unit::kNr) / Unit::kNr : 1;
    const int64_t tiles = k > Unit::kKPart ? panels * (Unit::kMc / Unit::kMr) : 1;
    return static_cast<size_t>(kTilesAt + tiles * kTileSums * 4);
  }

  // The parts of the scratch, in their order.
  static typename Unit::Element* packedA(std::byte* scratch) {
    return reinterpret_cast<typename Unit::Element*>(scratch);
  }
  static PanelElement<Unit>* panels(std::byte* scratch) {
    return reinterpret_cast<PanelElement<Unit>*>(scratch + kABytes);
  }
  static typename Unit::Element* widePanels(std::byte* scratch) {
    return reinterpret_cast<typename Unit::Element*>(scratch + kWideAt);
  }
  static typename Unit::Sum* tiles(std::byte* scratch) {
    return reinterpret_cast<typename Unit::Sum*>(scratch + kTilesAt);
  }
};

// The part of a panel of b that begins at this column and at the element k0 of the sum.
struct PanelPart {
  int32_t col = -1, k0 = 0;  // -1: none
  friend bool operator==(const PanelPart&, const PanelPart&) = default;
};

// The one after the part of the panel of `col` that ends at the element `end` of a block of the sum.
template <class Unit>
PanelPart partAfter(const Block& block, int32_t col, int32_t end) {
  if (block.k == 0) return {};  // an empty operand may be null
  if (end < block.k) return {col, block.k0 + end};
  if (col + Unit::kNr < block.n) return {col + Unit::kNr, block.k0};
  if (!block.last) return {0, block.k0 + block.k};
  return block.row + block.rows < block.m ? PanelPart{0, 0} : PanelPart{};
}

// Room for packed parts: for the one that is multiplied, and for the next one.
template <class Element>
struct PanelRoom {
  Element* now;
  Element* next;
  PanelPart packed;  // what was packed to `now` meanwhile

  void goOnWith(const PanelPart& part) {
    Element* const free = now;
    now = next;
    next = free;
    packed = part;
  }
};

// Whether so few groups of rows use a panel that was packed before that the hardware prefetches it best.
template <class Unit>
bool streams(const Unit& unit, int32_t groups) {
  if constexpr (LetsPanelsStream<Unit>)
    return unit.streams(groups);
  else
    return false;
}

// Whether sums may leave a Unit's registers for the result, without a tile in between.
template <class Unit, class Source>
bool hasResultTiles(const Source& source) {
  if constexpr (MakesResults<Unit> && HasResultTiles<Source>)
    return source.hasResultTiles();
  else
    return false;
}

template <class Unit, class Source, class B, class AnyAhead>
void multiplyToResult(Unit& unit, const Source& source, const typename Unit::Element* a, const B* b,
                      int32_t k, bool first, const typename Unit::Sum* before, int32_t row, int32_t col,
                      AnyAhead& ahead) {
  if constexpr (MakesResults<Unit> && HasResultTiles<Source>)
    source.withResultTile(
        row, col, [&](const auto& tile) { unit.multiplyToResult(a, b, k, first, before, tile, ahead); });
}

// A packed part of a panel, and the packed rows of a block and tiles that belong to it.
template <class Unit, class B>
struct PartOfBlock {
  int32_t col, cols;
  int32_t at, length;  // elements of the block's sum
  const B* b;
  typename Unit::Element* a;
  typename Unit::Sum* tile;
  int64_t tileStride;
  bool toResult;  // sums need no tile
};

// All groups of rows of the block times the part.
template <class Unit, class Source, class B, class AnyAhead>
void multiplyPart(Unit& unit, const Source& source, const Block& block, PartOfBlock<Unit, B> part,
                  AnyAhead& ahead) {
  const auto [col, cols, at, length, b, a, tile, tileStride, toResult] = part;
  const int32_t rows = block.rows, fetches = length / Unit::kFetchEvery;
  const bool first = block.k0 + at == 0, ends = at + length >= block.k;
  const bool fetchesA = length > 0 && (col == 0 || (ends && col + Unit::kNr >= block.n));
  const bool fetchesC = block.last && ends && source.fetchesC();
  for (int32_t from = 0; from < rows; from += Unit::kMr) {
    const int32_t row = block.row + from, groupRows = smaller(Unit::kMr, rows - from);
    if (fetchesA && from % Source::kRowsAtOnce == 0) {
      const int32_t count = smaller(Source::kRowsAtOnce, rows - from);
      if (col == 0) source.packA(row, count, block.k0 + at, length, part.a);
      ahead.a.become([&] { return nextOfA<Unit>(source, block, from, col, at); });
      ahead.a.spreadOver((count + Unit::kMr - 1) / Unit::kMr * fetches);
    }
    if (fetchesC) {
      ahead.c.become([&] { return nextOfC<Unit>(source, block, from, col); });
      ahead.c.spreadOver(fetches);
    }
    if (toResult && groupRows == Unit::kMr && cols == Unit::kNr) {
      multiplyToResult(unit, source, part.a, b, length, first, part.tile, row, col, ahead);
    } else {
      unit.multiply(part.a, b, length, groupRows, cols, first, part.tile, ahead);
      if (block.last && ends) source.store(row, groupRows, col, cols, part.tile);
    }
    part.a += int64_t{Unit::kMr} * Unit::kAStride;
    part.tile += tileStride;
  }
}

template <class Unit, class Source>
void multiplyBlock(Unit& unit, const Source& source, const Block& block, std::byte* scratch,
                   PanelRoom<PanelElement<Unit>>& room) {
  using Layout = ScratchLayout<Unit>;
  using Element = typename Unit::Element;
  static_assert(Source::kRowsAtOnce % Unit::kMr == 0);
  Element *const a = Layout::packedA(scratch), *const wide = Layout::widePanels(scratch);
  auto* const tiles = Layout::tiles(scratch);
  const int32_t n = block.n, k = block.k;
  const bool oneBlock = block.k0 == 0 && block.last, onePart = oneBlock && k <= Unit::kKPart;
  const int32_t groups = (block.rows + Unit::kMr - 1) / Unit::kMr;
  const int64_t tileStride = onePart ? 0 : Layout::kTileSums,
                panelStride = oneBlock ? 0 : groups * tileStride;
  const int64_t partOfA = elementsOfA<Unit>(block.rows);
  const bool toResult = k > 0 && hasResultTiles<Unit>(source);
  for (int32_t col = 0, panel = 0; col < n; col += Unit::kNr, ++panel) {
    const int32_t cols = columnsFrom<Unit>(source, col, n);
    int32_t end = 0;
    do {
      const int32_t at = end, length = smaller(Unit::kKPart, k - at);
      const int32_t calls = groups * (length / Unit::kFetchEvery);
      end = at + length;
      const PanelPart here = {col, block.k0 + at}, after = partAfter<Unit>(block, col, end);
      const auto* const ready = source.readyB(col, here.k0);
      const auto partWith = [&]<class B>(const B* b) -> PartOfBlock<Unit, B> {
        return {col,
                cols,
                at,
                length,
                b,
                a + at / Unit::kKPart * partOfA,
                tiles + panel * panelStride,
                tileStride,
                toResult && block.last && end >= k};
      };
      const auto fetchB = [&](Ahead& ahead) {
        ahead.b.become([&] { return source.linesB(after.col, after.k0); });
        ahead.b.spreadOver(calls);
        if (groups == 1) ahead.b.areUsedOnce();
      };
      if constexpr (PacksWidePanels<Source, Unit>) {
        Ahead ahead;
        if (after != PanelPart()) fetchB(ahead);
        if (length > 0) source.packWide(col, cols, here.k0, length, wide);
        multiplyPart(unit, source, block, partWith(static_cast<const Element*>(wide)), ahead);
        continue;
      } else if (ready == nullptr && room.packed != here && length > 0) {
        source.packB(col, cols, here.k0, length, room.now, nullptr);
      }
      const auto part = partWith(ready == nullptr ? room.now : ready);
      if constexpr (PacksNextPanel<Unit> && RearrangesOnly<Source>) {
        const int32_t next = smaller(Unit::kKPart, source.length() - after.k0);
        const bool transposed = source.liesTransposed();
        if (ready == nullptr && after != PanelPart() && cols == Unit::kNr && calls > 0 &&
            Unit::NextPanel::canPack(columnsFrom<Unit>(source, after.col, n), next, transposed)) {
          AheadPacking<typename Unit::NextPanel> ahead = {
              {},
              {source.sourceB(after.col, after.k0), source.strideB(), next, transposed, room.next, calls}};
          multiplyPart(unit, source, block, part, ahead);
          room.goOnWith(after);
          continue;
        }
      }
      if constexpr (FetchesPanels<Unit>)
        if (ready != nullptr && Unit::fetchesPanel(block.rows)) {
          AheadInPanel ahead;
          multiplyPart(unit, source, block, part, ahead);
          continue;
        }
      Ahead ahead;
      if (after != PanelPart() && (ready == nullptr || !streams(unit, groups))) fetchB(ahead);
      room.packed = {};
      if constexpr (WidensPanels<Unit>)
        if (groups >= Unit::kGroupsToWiden) {
          Unit::widen(part.b, length, wide);
          multiplyPart(unit, source, block, partWith(static_cast<const Element*>(wide)), ahead);
          continue;
        }
      multiplyPart(unit, source, block, part, ahead);
    } while (end < k);
  }
}

template <class Unit, class Source>
Unit unitFor(const Source& source) {
  if constexpr (MakesUnit<Source>)
    return source.unit();
  else
    return Unit();
}

// The elements of the sum by which blocks of so many rows are multiplied. One or two groups wait for the
// panels rather than for anything else, so those that were packed before are read whole: in the order of
// memory.
template <class Unit, class Source>
int32_t sumOfBlock(const Source& source, int32_t rows, int32_t k) {
  const int64_t parts = roundUp(k, Unit::kKPart) / Unit::kKPart;
  const bool hasRoomForA = rows * parts <= int64_t{Unit::kMc} * ScratchLayout<Unit>::kParts;
  return rows <= 2 * Unit::kMr && hasRoomForA && source.readyB(0, 0) != nullptr ? k : Unit::kKc;
}

// The largest sum of which eight panels have room where one part of a panel has.
template <class Unit>
constexpr int32_t kMaxShortSum = Unit::kKPart / 8;

// A product with a short sum takes as long as writing its result, which memory does fastest in long runs. So
// each group of rows multiplies a whole strip of panels before the next group:
//
//   for strips of panels that have room where one part of a panel has
//     pack and widen the panels
//     for groups of kMr rows: pack a; for panels of the strip: the result += or = a group * b panel
template <class Unit, class Source>
void shortSumProduct(const Source& source, int32_t m, int32_t n, int32_t k, void* scratch) {
  using Layout = ScratchLayout<Unit>;
  using Element = typename Unit::Element;
  Unit unit;
  auto* const memory = static_cast<std::byte*>(scratch);
  Element *const a = Layout::packedA(memory), *const wide = Layout::widePanels(memory);
  auto* const narrow = Layout::panels(memory);
  auto* const tile = Layout::tiles(memory);
  Ahead nothing;  // the processor prefetches runs by itself
  const int32_t strip = Unit::kKPart / k * Unit::kNr;
  for (int32_t begin = 0; begin < n; begin += strip) {
    const int32_t end = smaller(n, begin + strip);
    const auto panel = [&](int32_t col) { return wide + int64_t{col - begin} * k; };
    for (int32_t col = begin; col < end; col += Unit::kNr) {
      source.packB(col, smaller(Unit::kNr, n - col), 0, k, narrow, nullptr);
      Unit::widen(narrow, k, panel(col));
    }
    for (int32_t row = 0; row < m; row += Unit::kMr) {
      const int32_t rows = smaller(Unit::kMr, m - row);
      source.packA(row, rows, 0, k, a);
      for (int32_t col = begin; col < end; col += Unit::kNr) {
        const int32_t cols = smaller(Unit::kNr, n - col);
        const Element* const b = panel(col);
        if (rows == Unit::kMr && cols == Unit::kNr) {
          multiplyToResult(unit, source, a, b, k, true, tile, row, col, nothing);
          continue;
        }
        unit.multiply(a, b, k, rows, cols, true, tile, nothing);
        source.store(row, rows, col, cols, tile);
      }
    }
  }
}

// c[m, n] = a[m, k] * b[k, n]; with k == 0 it stores zeros.
template <MultipliesPanels Unit, HasFactors<Unit> Source>
void blockedProduct(const Source& source, int32_t m, int32_t n, int32_t k, void* scratch) {
  if (m <= 0 || n <= 0) return;
  if constexpr (WidensPanels<Unit> && MakesResults<Unit> && HasResultTiles<Source>)
    if (k > 0 && k <= kMaxShortSum<Unit> && source.hasResultTiles())
      return shortSumProduct<Unit>(source, m, n, k, scratch);
  Unit unit = unitFor<Unit>(source);
  using Layout = ScratchLayout<Unit>;
  auto* const memory = static_cast<std::byte*>(scratch);
  auto* const panels = Layout::panels(memory);
  PanelRoom<PanelElement<Unit>> room = {
      panels, panels + (Layout::kBBytes - Layout::kPanelBytes) / sizeof *panels, {}};
  const int32_t blocks = (m - 1) / Unit::kMc + 1;
  const auto blockRows = static_cast<int32_t>(roundUp((m - 1) / blocks + 1, Unit::kMr));
  const int32_t blockSum = sumOfBlock<Unit>(source, blockRows, k);
  for (int32_t row = 0; row < m; row += blockRows) {
    const int32_t rows = smaller(blockRows, m - row);
    int32_t k0 = 0;
    do {
      const int32_t length = smaller(blockSum, k - k0);
      multiplyBlock(unit, source, Block{row, rows, m, n, k0, length, k0 + length >= k}, memory, room);
      k0 += length;
    } while (k0 < k);
  }
}

}  // namespace
}  // namespace sluice::ops
