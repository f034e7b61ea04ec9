// The contract of a product with what multiplies it, a Unit, and with what it multiplies, a Source. Each
// instruction set brings Units, and each pair of types a Source (gmm_sources.h, weight_grad_sources.h).
//
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/ahead.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// A tile of kMr x kNr elements of a result in memory, to which a sum goes times alpha: added to what is
// there, if `adds`, else written, past the caches (stream.h) if kStreams.
template <class T, bool kStreams>
struct ResultTile {
  T* data;
  int64_t ld;  // of rows, in elements
  float alpha;
  bool adds;
};

template <class Unit>
struct PanelElementOf {
  using Type = typename Unit::Element;
};
template <class Unit>
  requires requires { typename Unit::PanelElement; }
struct PanelElementOf<Unit> {
  using Type = typename Unit::PanelElement;
};
// The type of packed panels of b: PanelElement if the Unit has one, else that of packed rows of a.
template <class Unit>
using PanelElement = typename PanelElementOf<Unit>::Type;

// --- What a Unit has -----------------------------------------------------------------------------------

// It is constructed once per product.
template <class Unit>
concept MultipliesPanels = requires(Unit unit, const typename Unit::Element* a, const PanelElement<Unit>* b,
                                    typename Unit::Sum* tile, Ahead& ahead, int32_t size, bool first) {
  Unit::kMr, Unit::kNr;  // rows and columns of a tile
  Unit::kMc, Unit::kKc;  // blocks of the rows and of the sum
  Unit::kKPart;          // the part of a block of the sum for which a panel of b is packed at once
  Unit::kAStride;        // elements between two rows of a part of the packed a
  Unit::kKUnit;          // packed rows and panels are padded with zeros to a multiple of so many elements
  Unit::kFetchEvery;     // It calls ahead.fetch() at least once for so many elements of the sum.
  requires sizeof(typename Unit::Sum) == 4;
  // The first rows x cols elements of tile[kMr, kNr] += a * b over k padded elements: (a, b, k, rows, cols,
  // first, tile, ahead). If `first`, the tile has no content yet.
  unit.multiply(a, b, size, size, size, first, tile, ahead);
};

// The packed a has the kMr rows of a group side by side: the group is [kAStride][kMr] then, which is read as
// one stream. Otherwise the packed a is [rows][kAStride].
template <class Unit>
concept InterleavesRows = requires { Unit::kInterleavesA; };

// A part of a panel of b has more than its elements.
template <class Unit>
concept HasPanelBytes = requires { Unit::kPanelBytes; };

// If at least kGroupsToWiden groups of rows use a part of a panel, it is widened to Elements before, by which
// multiply() then multiplies.
template <class Unit>
concept WidensPanels = requires(const PanelElement<Unit>* panel, int32_t k, typename Unit::Element* to) {
  Unit::kGroupsToWiden;
  Unit::widen(panel, k, to);
};

// NextPanel(from, ld, k, liesTransposed, panel, calls) packs what lies at `from` as packB() would, in so many
// calls of step(), if canPack(cols, k, liesTransposed). multiply() and multiplyToResult() then accept an
// AheadPacking, too.
template <class Unit>
concept PacksNextPanel = requires { typename Unit::NextPanel; };

// streams(groups): whether panels that were packed before are not prefetched if so few groups of rows use
// them, because the processor does that best by itself.
template <class Unit>
concept LetsPanelsStream = requires(Unit unit, int32_t groups) { unit.streams(groups); };

// fetchesPanel(rows): whether multiply() of so many rows prefetches panels that were packed before as it
// reads them. It then accepts an AheadInPanel, too.
template <class Unit>
concept FetchesPanels = requires(int32_t rows) { Unit::fetchesPanel(rows); };

// multiplyToResult(a, b, k, first, tile, result, ahead): multiply() of a whole tile for the last part of its
// sum, to a ResultTile.
template <class Unit>
concept MakesResults = requires(Unit unit, const PanelElement<Unit>* b, Ahead& ahead) {
  unit.multiplyToResult(nullptr, b, 0, true, nullptr, ResultTile<float, true>{}, ahead);
};

// For few rows, besides kFewKc (the elements of the sum for which a panel is packed at once): kRowsKc,
// likewise, if it reads packed panels only.
template <class Unit>
concept ReadsPanelsOnly = requires { Unit::kRowsKc; };

// rowsOfBInPlace(m, ldb): by how many rows of a b [k, n], which lie ldb elements apart, it multiplies m rows
// of a in place; 0 if packing is faster. multiplyRows() is multiply() for rows in place.
template <class Unit>
concept ReadsRowsInPlace = requires(int32_t m, int64_t ldb) { Unit::rowsOfBInPlace(m, ldb); };

// Strips (strips_avx512.h): kColumns (of a tile), suit() (whether they are fastest on this processor) and
// multiply(source, rows, columns, k, tiles).
template <class Unit>
concept HasStrips = requires { typename Unit::Strips; };

// A Square (columns.h).
template <class Unit>
concept HasSquare = requires { typename Unit::Square; };

// For transposed_rows.h:
//   readsInPlace(rows): whether so many rows of a are multiplied fastest by a transposed b in place
//   columnsInPlace(cols): the number of columns, at least `cols`, that it multiplies by fastest
//   rowsInPlace(cols): the rows of a tile of so many columns, kMr or 2 * kMr
//   multiplyInPlace(a, lda, b, k, rows, cols, tile, ahead): tile += a * b like multiply(), for rows of bf16
//   in memory and a k that is a multiple of kKUnit
template <class Unit>
concept ReadsColumnsInPlace = HasSquare<Unit> && requires { Unit::multiplyInPlace; };

// For codes of type B: FewCodes<B> (few_codes_avx2.h) and CodePanels<B> (code_panels_avx2.h), which decode in
// registers, and to panels that are wide already.
template <class Unit, class B>
concept DecodesCodes = requires {
  typename Unit::template FewCodes<B>;
  typename Unit::template CodePanels<B>;
};

// --- What a Source has ---------------------------------------------------------------------------------

template <class Source, class Unit>
concept HasFactors = requires(const Source& source, typename Unit::Element* a, PanelElement<Unit>* b,
                              const typename Unit::Sum* tile, int32_t size) {
  // (row, rows, k0, k, dst): rows of a, whose elements k0 to k0 + k go where offsetInA says, padded with
  // zeros.
  source.packA(size, size, size, size, a);
  // The rows for which packA is called, a multiple of kMr: few, so that the rows before hide the reading of
  // the next ones, but two groups take fewer instructions than one.
  Source::kRowsAtOnce;
  // (row, rows, k0): the memory that packA will read of these rows for the part from k0 on.
  source.linesA(size, size, size);
  // (col, k0): that panel of b if it was packed before; otherwise null. And the memory that is read for it.
  source.readyB(size, size);
  source.linesB(size, size);
  // (row, rows, col, cols): the memory of the result that store() will read or write, if fetchesC().
  source.linesC(size, size, size, size);
  source.fetchesC();
  // (row, rows, col, cols, tile): takes the finished tile, [kMr][kNr] sums.
  source.store(size, size, size, size, tile);
};

// packB(col, cols, k0, k, dst, ahead): a panel of b as multiply() reads it, padded with zeros; meanwhile it
// prefetches the panel that begins at `ahead`, unless null. sourceB(col, k0) is where a panel begins in
// memory.
template <class Source, class Unit>
concept PacksPanels = HasFactors<Source, Unit> && requires(const Source& source, PanelElement<Unit>* b) {
  source.packB(0, 0, 0, 0, b, nullptr);
};

// packWide(col, cols, k0, k, dst), instead of packB(): a panel that is wide already.
template <class Source, class Unit>
concept PacksWidePanels =
    HasFactors<Source, Unit> &&
    requires(const Source& source, typename Unit::Element* wide) { source.packWide(0, 0, 0, 0, wide); };

// unit(): the Unit, if that is not constructed without arguments.
template <class Source>
concept MakesUnit = requires(const Source& source) { source.unit(); };

// columnsFrom(col): the columns of the panel that begins there, if others than the last one may have less
// than kNr.
template <class Source>
concept CountsColumns = requires(const Source& source) { source.columnsFrom(0); };

// hasResultTiles() and withResultTile(row, col, multiply), which calls multiply(tile) with the ResultTile of
// a whole tile.
template <class Source>
concept HasResultTiles = requires(const Source& source) { source.hasResultTiles(); };

// packB() only rearranges bf16 that sourceB(col, k0) points to, with rows strideB() apart (columns if it
// liesTransposed()), of length() elements of the sum in all.
template <class Source>
concept RearrangesOnly = requires { Source::kRearrangesOnly; };

}  // namespace
}  // namespace sluice::ops
