// The blocked matrix product that all instruction sets share: it cuts m, n and k into blocks that stay in the
// caches and leaves packing to `Source` and arithmetic to `Unit`.
//
//   for blocks of at most kMc rows of c, which share one packing of b
//     for blocks of kKc of the sum
//       for panels of kNr columns of c
//         for parts of kKPart of the block of the sum
//           pack that part of the panel of b
//           for groups of kMr rows:
//             for the first panel, pack that part of the rows of a, of one or several groups
//             tile[kMr, kNr] += a group * b panel; after the last part, store the tile
//
// A part of a panel stays in the first cache level; meanwhile the Unit prefetches the next part, a few lines
// at a time. The packed a stays in the second level.
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
constexpr int32_t smaller(int32_t x, int32_t y) { return x < y ? x : y; }

inline int64_t roundUp(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Prefetches a cache line into the second level. In the first level it would evict data in use, and the
// second level allows more outstanding lines. Never faults.
inline void fetchSoon(const void* line) { __builtin_prefetch(line, 0, 2); }

// Into the first level, of what is used once.
inline void fetchNear(const void* line) { __builtin_prefetch(line, 0, 3); }

constexpr int32_t kLineBytes = 64;
constexpr int32_t kLineOfBf16 = kLineBytes / 2;

// The cache lines of some rows of memory, to be prefetched one after another.
class Lines {
 public:
  Lines() = default;
  // `bytes` bytes of each of `rows` rows, which begin `stride` bytes apart, or at index[i] * stride.
  Lines(const void* from, int32_t rows, int64_t stride, int64_t bytes, const int32_t* index = nullptr)
      : from_(static_cast<const char*>(from)), stride_(stride), index_(index) {
    const int64_t ofRow =
        (__builtin_bit_cast(intptr_t, from) % kLineBytes + bytes + kLineBytes - 1) / kLineBytes;
    inRow_ = leftInRow_ = static_cast<int32_t>(ofRow);
    left_ = static_cast<int32_t>(rows * ofRow);
    if (left_ > 0) beginRow();
  }

  // Begins anew with what `make` returns, made in place: a copy would wait for what was just written.
  template <class Make>
  void become(const Make& make) {
    new (this) Lines(make());
  }
  static void* operator new(size_t, void* at) { return at; }
  // The lines shall be prefetched by this number of calls of fetch().
  void spreadOver(int32_t calls) {
    if (left_ > 0) perCall_ = calls > 0 ? (left_ + calls - 1) / calls : left_;
  }
  void areUsedOnce() { isNear_ = true; }
  void fetch() {
    for (int32_t i = 0; i < perCall_ && left_ > 0; ++i, --left_) {
      isNear_ ? fetchNear(at_) : fetchSoon(at_);
      at_ += kLineBytes;
      if (--leftInRow_ > 0) continue;
      leftInRow_ = inRow_;
      if (left_ > 1) beginRow();
    }
  }

 private:
  void beginRow() {
    at_ = from_ + (index_ == nullptr ? row_ : index_[row_]) * stride_;
    ++row_;
  }

  const char *from_ = nullptr, *at_ = nullptr;
  int64_t stride_ = 0;
  const int32_t* index_ = nullptr;
  int32_t left_ = 0, inRow_ = 0, leftInRow_ = 0, perCall_ = 0, row_ = 0;
  bool isNear_ = false;
};

// A tile of kMr x kNr elements of a result in memory, to which a sum goes times alpha: added to what is
// there, if `adds`, else written past the caches (stream.h).
template <class T>
struct ResultTile {
  T* data;
  int64_t ld;  // of rows, in elements
  float alpha;
  bool adds;
};

// What a Unit prefetches while it multiplies: of both operands, and of the result.
struct Ahead {
  Lines a, b, c;
  void fetch() {
    a.fetch();
    b.fetch();
    c.fetch();
  }
};

// Rows [row, row + rows) of m against all n columns, for the elements [k0, k0 + k) of the sum, which may be
// the last ones.
struct Block {
  int32_t row, rows, m, n, k0, k;
  bool last;
};

// The tile of c that is stored after that of the group `from` and the panel of `col`: in its panel, then in
// the next one.
template <class Unit, class Source>
Lines nextOfC(const Source& source, const Block& block, int32_t from, int32_t col) {
  if (from + Unit::kMr < block.rows)
    from += Unit::kMr;
  else if (col + Unit::kNr < block.n)
    from = 0, col += Unit::kNr;
  else
    return {};
  return source.linesC(block.row + from, smaller(Unit::kMr, block.rows - from), col,
                       smaller(Unit::kNr, block.n - col));
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

// The members of a Unit, which is constructed once per product: kMr, kNr (a tile), kMc, kKc and kKPart
// (blocks of the rows and of the sum, and parts of the latter), kAStride (elements between two rows of a part
// of the packed a), kKUnit (both panels are padded with zeros to a multiple of it), Element (of the panels),
// Sum (4 bytes), kFetchEvery (see multiply), kPanelBytes (of a part of a panel of b, if it has more than its
// elements); for few_rows.h kFewKc, kRowsKc, kMostInPlace (the largest number of rows of a for which b is
// read in place; 0: it is always packed) and optionally kStreamedRows (see rowsOfB); for columns.h optionally
// Square; optionally kPacksOnTheWay, with
//   multiplyPacking(a, b, ldb, panel, k, rows, first, tile, ahead): multiply() by a whole panel that is k
//   rows of bf16 in memory, which it packs to `panel` as packB() would
// optionally
//   streams(groups): whether panels that were packed before are not prefetched if so few groups of rows use
//   them, because the processor does that best by itself
// optionally
//   multiplyToResult(a, b, k, result, ahead): multiply() of a whole tile, which is the only part of its sum,
//   to a ResultTile
// and
//   multiply(a, b, k, rows, cols, first, tile, ahead): the first rows x cols elements of tile[kMr, kNr] +=
//   a * b over the k padded elements; if `first`, the tile has no content yet. It calls ahead.fetch() about
//   every kFetchEvery elements of the sum.
// The members of a Source:
//   packA(row, rows, k0, k, dst): rows of a, [rows][kAStride], elements k0 to k0 + k, padded with zeros
//   kRowsAtOnce: for how many rows packA is called, a multiple of kMr: few, so that the rows before hide the
//   reading of the next ones, but two groups take fewer instructions than one
//   linesA(row, rows, k0): the memory that packA will read of these rows for the part from k0 on
//   readyB(col, k0): that panel of b if it was packed before; otherwise null
//   linesB(col, k0): the memory that is read for the part of that panel of b
//   linesC(row, rows, col, cols): the memory of the result that store() will read or write, if fetchesC()
//   packB(col, cols, k0, k, dst, ahead): a panel of b as Unit::multiply reads it, padded with zeros;
//   meanwhile prefetches the panel that begins at `ahead`, unless null
//   store(row, rows, col, cols, tile): the finished tile, [kMr][kNr] sums
//   unit(): the Unit, if that is not constructed without arguments
//   optionally hasResultTiles() and withResultTile(row, col, multiply), which calls multiply(tile) with the
//   ResultTile of a whole tile
//   optionally kInterleavesOnly: packB() only rearranges bf16 that sourceB(col, k0) points to, with rows
//   strideB() apart unless liesTransposed()
// and for few_rows.h sourceB(col, k0): where that panel of b begins in memory.

// Of a packed part of a panel of b.
template <class Unit>
constexpr int64_t panelBytes() {
  if constexpr (requires { Unit::kPanelBytes; })
    return Unit::kPanelBytes;
  else
    return int64_t{Unit::kNr} * Unit::kKPart * sizeof(typename Unit::Element);
}

template <class Unit>
struct ScratchLayout {
  static constexpr int32_t kParts = Unit::kKc / Unit::kKPart;
  static constexpr int64_t kABytes =
      int64_t{Unit::kMc} * kParts * Unit::kAStride * sizeof(typename Unit::Element);
  static constexpr int64_t kBBytes = panelBytes<Unit>();
  static constexpr int64_t kTileSums = int64_t{Unit::kMr} * Unit::kNr;
  static_assert(sizeof(typename Unit::Sum) == 4 && Unit::kKc % Unit::kKPart == 0);
  static_assert(kABytes % 64 == 0 && kBBytes % 64 == 0 && Unit::kMc % Unit::kMr == 0 && Unit::kMc % 16 == 0);

  // With one part of the sum one tile at a time is needed, with several those of a panel of columns; with
  // several blocks those of all panels.
  static size_t bytes(int32_t n, int32_t k) {
    const int64_t panels = k > Unit::kKc && n > 0 ? roundUp(n, Unit::kNr) / Unit::kNr : 1;
    const int64_t tiles = k > Unit::kKPart ? panels * (Unit::kMc / Unit::kMr) : 1;
    return static_cast<size_t>(kABytes + kBBytes + tiles * kTileSums * 4);
  }
};

// What is read of b after the part of the panel of `col` that ends at `end`.
template <class Unit, class Source>
Lines linesAfter(const Source& source, const Block& block, int32_t col, int32_t end) {
  if (block.k == 0) return {};  // an empty operand may be null
  if (end < block.k) return source.linesB(col, block.k0 + end);
  if (col + Unit::kNr < block.n) return source.linesB(col + Unit::kNr, block.k0);
  return block.last ? Lines() : source.linesB(0, block.k0 + block.k);
}

// Whether the first group of rows may pack a whole panel while it multiplies by it.
template <class Unit, class Source>
constexpr bool kPacksOnTheWay = requires {
  Unit::kPacksOnTheWay;
  Source::kInterleavesOnly;
};
template <class Unit, class Source>
bool canPackOnTheWay(const Source& source) {
  if constexpr (kPacksOnTheWay<Unit, Source>)
    return !source.liesTransposed();
  else
    return false;
}

template <class Unit, class Source>
void multiplyPacking(Unit& unit, const Source& source, const typename Unit::Element* a, int32_t col,
                     int32_t k0, int32_t k, int32_t rows, bool first, typename Unit::Element* panel,
                     typename Unit::Sum* tile, Ahead& ahead) {
  if constexpr (kPacksOnTheWay<Unit, Source>)
    unit.multiplyPacking(a, source.sourceB(col, k0), source.strideB(), panel, k, rows, first, tile, ahead);
}

// Whether so few groups of rows use a panel that was packed before that the hardware prefetches it best.
template <class Unit>
bool streams(const Unit& unit, int32_t groups) {
  if constexpr (requires { unit.streams(groups); })
    return unit.streams(groups);
  else
    return false;
}

// Whether sums may leave a Unit's registers for the result, without a tile in between.
template <class Unit, class Source>
constexpr bool kHasResultTiles = requires(Unit& unit, const Source& source, Ahead& ahead) {
  unit.multiplyToResult(nullptr, nullptr, 0, ResultTile<float>{}, ahead);
  source.hasResultTiles();
};
template <class Unit, class Source>
bool hasResultTiles(const Source& source) {
  if constexpr (kHasResultTiles<Unit, Source>)
    return source.hasResultTiles();
  else
    return false;
}

template <class Unit, class Source>
void multiplyToResult(Unit& unit, const Source& source, const typename Unit::Element* a,
                      const typename Unit::Element* b, int32_t k, int32_t row, int32_t col, Ahead& ahead) {
  if constexpr (kHasResultTiles<Unit, Source>)
    source.withResultTile(row, col, [&](const auto& tile) { unit.multiplyToResult(a, b, k, tile, ahead); });
}

template <class Unit, class Source>
void multiplyBlock(Unit& unit, const Source& source, const Block& block, std::byte* scratch) {
  using Element = typename Unit::Element;
  using Layout = ScratchLayout<Unit>;
  static_assert(Source::kRowsAtOnce % Unit::kMr == 0);
  auto* const a = reinterpret_cast<Element*>(scratch);
  auto* const b = reinterpret_cast<Element*>(scratch + Layout::kABytes);
  auto* const tiles = reinterpret_cast<typename Unit::Sum*>(scratch + Layout::kABytes + Layout::kBBytes);
  const auto [row, rows, m, n, k0, k, last] = block;
  const bool oneBlock = k0 == 0 && last;
  const int32_t groups = (rows + Unit::kMr - 1) / Unit::kMr;
  const int64_t tileStride = oneBlock && k <= Unit::kKPart ? 0 : Layout::kTileSums;
  const int64_t panelStride = oneBlock ? 0 : groups * tileStride;
  const int64_t partOfA = int64_t{rows} * Unit::kAStride;
  const bool toResult = oneBlock && k > 0 && k <= Unit::kKPart && hasResultTiles<Unit>(source);
  for (int32_t col = 0, panel = 0; col < n; col += Unit::kNr, ++panel) {
    const int32_t cols = smaller(Unit::kNr, n - col);
    int32_t at = 0;
    do {
      const int32_t length = smaller(Unit::kKPart, k - at), fetches = length / Unit::kFetchEvery;
      const bool first = k0 + at == 0, ends = at + length >= k;
      const bool fetchesA = length > 0 && (col == 0 || (ends && col + Unit::kNr >= n));
      const bool fetchesC = last && ends && source.fetchesC();
      const Element* panelB = source.readyB(col, k0 + at);
      const bool packs = panelB == nullptr && length > 0;
      const bool packsOnTheWay = packs && cols == Unit::kNr && canPackOnTheWay<Unit>(source);
      if (packs && !packsOnTheWay) source.packB(col, cols, k0 + at, length, b, nullptr);
      if (panelB == nullptr) panelB = b;
      Ahead ahead;
      if (packs || !streams(unit, groups)) {
        ahead.b.become([&] { return linesAfter<Unit>(source, block, col, at + length); });
        ahead.b.spreadOver(groups * fetches);
        if (groups == 1) ahead.b.areUsedOnce();
      }
      Element* partA = a + at / Unit::kKPart * partOfA;
      auto* tile = tiles + panel * panelStride;
      for (int32_t from = 0; from < rows; from += Unit::kMr) {
        const int32_t groupRows = smaller(Unit::kMr, rows - from);
        if (fetchesA && from % Source::kRowsAtOnce == 0) {
          const int32_t count = smaller(Source::kRowsAtOnce, rows - from);
          if (col == 0) source.packA(row + from, count, k0 + at, length, partA);
          ahead.a.become([&] { return nextOfA<Unit>(source, block, from, col, at); });
          ahead.a.spreadOver((count + Unit::kMr - 1) / Unit::kMr * fetches);
        }
        if (fetchesC) {
          ahead.c.become([&] { return nextOfC<Unit>(source, block, from, col); });
          ahead.c.spreadOver(fetches);
        }
        const bool packsNow = packsOnTheWay && from == 0;
        if (toResult && groupRows == Unit::kMr && cols == Unit::kNr && !packsNow) {
          multiplyToResult(unit, source, partA, panelB, length, row + from, col, ahead);
        } else {
          if (packsNow)
            multiplyPacking(unit, source, partA, col, k0 + at, length, groupRows, first, b, tile, ahead);
          else
            unit.multiply(partA, panelB, length, groupRows, cols, first, tile, ahead);
          if (last && ends) source.store(row + from, groupRows, col, cols, tile);
        }
        partA += int64_t{Unit::kMr} * Unit::kAStride;
        tile += tileStride;
      }
      at += length;
    } while (at < k);
  }
}

template <class Unit, class Source>
Unit unitFor(const Source& source) {
  if constexpr (requires { source.unit(); })
    return source.unit();
  else
    return Unit();
}

// c[m, n] = a[m, k] * b[k, n]; with k == 0 it stores zeros.
template <class Unit, class Source>
void blockedProduct(const Source& source, int32_t m, int32_t n, int32_t k, void* scratch) {
  if (m <= 0 || n <= 0) return;
  Unit unit = unitFor<Unit>(source);
  const int32_t blocks = (m - 1) / Unit::kMc + 1;
  const auto blockRows = static_cast<int32_t>(roundUp((m - 1) / blocks + 1, Unit::kMr));
  for (int32_t row = 0; row < m; row += blockRows) {
    const int32_t rows = smaller(blockRows, m - row);
    int32_t k0 = 0;
    do {
      const int32_t length = smaller(Unit::kKc, k - k0);
      multiplyBlock(unit, source, Block{row, rows, m, n, k0, length, k0 + length >= k},
                    static_cast<std::byte*>(scratch));
      k0 += length;
    } while (k0 < k);
  }
}

}  // namespace
}  // namespace sluice::ops
