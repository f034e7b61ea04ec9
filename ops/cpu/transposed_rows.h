// Products with a transposed weight, b [n, k], of more rows than columns.h is for: computed as the transposed
// product, whose rows are the rows of b, read in place, and whose columns are the rows of a. So only a is
// transposed and packed, which is smaller.
//
//   pack all of a: [k / 2][kNr] pairs
//   for blocks of kBlockRows rows of b
//     for blocks of kBlockK of the sum
//       for groups of kMr rows of b: tile += the group in place * the packed a
//     store the tiles, transposed
//
// The sum of an element runs in the order of blocked_product.h, and the products of the Unit are the same
// with their factors exchanged, so both give the same bits. Internal linkage: see there.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/square.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class Unit, class Pack>
class TransposedRows {
 public:
  using Element = typename Unit::Element;

  // Rows of a, at most.
  static constexpr int32_t kMaxRows = Unit::kNr;

  static size_t scratchBytes(int32_t k) {
    return kTileBytes + kPairBytes + static_cast<size_t>(kMaxRows) * roundUp(k, kPad) * sizeof(Element);
  }

  explicit TransposedRows(const GmmArgs& args)
      : args_(args),
        columns_(Unit::columnsInPlace(args.rows)),
        rowsOfTile_(Unit::rowsInPlace(columns_)),
        tiles_(static_cast<float*>(args.scratch)),
        pairs_(reinterpret_cast<uint32_t*>(static_cast<std::byte*>(args.scratch) + kTileBytes)),
        packed_(reinterpret_cast<Element*>(static_cast<std::byte*>(args.scratch) + kTileBytes + kPairBytes)) {
  }

  void run() {
    pack();
    for (int32_t row = 0; row < args_.n; row += kBlockRows) multiplyRows(row);
  }

 private:
  static constexpr int32_t kBlockRows = 96, kBlockK = Unit::kKPart;
  static constexpr size_t kTileBytes = sizeof(float) * kBlockRows * Unit::kNr;
  static constexpr size_t kPairBytes = kBlockRows / 2 * kMaxRows * sizeof(uint32_t);
  static constexpr int32_t kPad = 64;     // packers write whole squares
  static constexpr int32_t kAhead = 256;  // elements of rows of a by which they are prefetched: they are many

  const BFloat16* b(int32_t row, int32_t k0) const {
    return static_cast<const BFloat16*>(args_.b.data) + row * args_.b.ld + k0;
  }

  void pack() const {
    const auto* const a = static_cast<const BFloat16*>(args_.a.data);
    if (!args_.rowsA) return Pack::panelOfColumns(a, args_.a.ld, args_.rows, args_.k, packed_, a + kAhead);
    constexpr const BFloat16* kNothing = nullptr;
    BFloat16 gathered[Unit::kNr * kPad];
    for (int32_t k0 = 0; k0 < args_.k; k0 += kPad) {
      const int32_t length = smaller(kPad, args_.k - k0);
      for (int32_t i = 0; i < args_.rows; ++i) {
        const BFloat16* const from = a + args_.rowsA.of(i) * args_.a.ld + k0;
        for (int32_t j = 0; j < kPad; j += kLineOfBf16) fetchSoon(from + kAhead + j);
        if (length == kPad)
          __builtin_memcpy(gathered + i * kPad, from, kPad * sizeof(BFloat16));
        else
          __builtin_memcpy(gathered + i * kPad, from, static_cast<size_t>(length) * sizeof(BFloat16));
      }
      Pack::panelOfColumns(gathered, kPad, args_.rows, length, packed_ + int64_t{k0} * Unit::kNr, kNothing);
    }
  }

  void multiplyRows(int32_t row) {
    const int32_t end = smaller(args_.n, row + kBlockRows);
    for (int32_t k0 = 0; k0 < args_.k; k0 += kBlockK) {
      const int32_t k = smaller(kBlockK, args_.k - k0);
      float* tile = tiles_;
      for (int32_t first = row, rows; first < end; first += rows) {
        rows = rowsAt(first, end);
        Ahead ahead;
        ahead.b = linesAfter(row, first + rows, end, k0, k);
        ahead.b.spreadOver(k / Unit::kFetchEvery);
        if (k0 == 0) __builtin_memset(tile, 0, sizeof(float) * rows * Unit::kNr);
        Unit::multiplyInPlace(b(first, k0), args_.b.ld, packed_ + int64_t{k0} * Unit::kNr, k, rows, columns_,
                              tile, ahead);
        if (k0 + k >= args_.k) round(first, rows, tile);
        tile += rows * Unit::kNr;
      }
    }
    store(row, end);
  }

  const float* scaled(const float* tile, int32_t column, float (&to)[Unit::kNr]) const {
    if (args_.bias == nullptr) return timesAlpha(tile, args_.rows, args_.alpha, to);
    const float bias = widenBf16(args_.bias[column].bits);
    for (int32_t j = 0; j < args_.rows; ++j) to[j] = tile[j] * args_.alpha + bias;
    return to;
  }

  // Returns the number of rows of the tile that begins at the row `first` of a block.
  int32_t rowsAt(int32_t first, int32_t end) const {
    return end - first >= rowsOfTile_ ? rowsOfTile_ : smaller(Unit::kMr, end - first);
  }

  // What is read of b after the rows before `row`, in a block from `first` to `end`.
  Lines linesAfter(int32_t first, int32_t row, int32_t end, int32_t k0, int32_t k) const {
    if (row >= end) {
      k0 += k;
      k0 < args_.k ? row = first : k0 = 0;
    }
    if (row >= args_.n) return {};
    return makeLines(b(row, k0), args_.b.ld, rowsAt(row, args_.n), smaller(kBlockK, args_.k - k0));
  }

  // A finished tile, whose rows are columns of the result from `row` on.
  void round(int32_t row, int32_t rows, const float* tile) const {
    static_assert(Unit::kMr % 2 == 0 && kBlockRows % Unit::kMr == 0);
    uint32_t* to = pairs_ + row % kBlockRows / 2 * kMaxRows;
    for (int32_t i = 0; i < rows; i += 2, to += kMaxRows) {
      BFloat16 rounded[2][Unit::kNr] = {};
      float times[Unit::kNr];
      for (int32_t h = 0; h < smaller(2, rows - i); ++h, tile += Unit::kNr)
        roundRow(scaled(tile, row + i + h, times), args_.rows, rounded[h]);
      for (int32_t j = 0; j < Unit::kNr; ++j) to[j] = rounded[0][j].bits | uint32_t{rounded[1][j].bits} << 16;
    }
  }

  // The columns [row, end) of the result.
  void store(int32_t row, int32_t end) const {
    for (int32_t i = row; i < end; i += 2 * kSquare)
      for (int32_t j = 0; j < args_.rows; j += kSquare) {
        const uint32_t* const from = pairs_ + (i - row) / 2 * kMaxRows + j;
        BFloat16* const to = static_cast<BFloat16*>(args_.c.data) + j * args_.c.ld + i;
        constexpr int64_t kStride = kMaxRows * sizeof(uint32_t);
        if (end - i >= 2 * kSquare && args_.rows - j >= kSquare) {
          transposeSquare(from, kStride, to, args_.c.ld * 2);
          continue;
        }
        BFloat16 square[kSquare][2 * kSquare];
        transposeSquare(from, kStride, square, sizeof square[0]);
        for (int32_t c = 0; c < smaller(kSquare, args_.rows - j); ++c)
          __builtin_memcpy(to + c * args_.c.ld, square[c],
                           static_cast<size_t>(smaller(2 * kSquare, end - i)) * 2);
      }
  }

  const GmmArgs& args_;
  const int32_t columns_, rowsOfTile_;
  float* const tiles_;
  uint32_t* const pairs_;  // of columns of the result: [kBlockRows / 2][kMaxRows]
  Element* const packed_;
};

template <class Unit>
size_t transposedScratchBytes(int32_t k) {
  if constexpr (ReadsColumnsInPlace<Unit>)
    return TransposedRows<Unit, void>::scratchBytes(k);
  else
    return 0;
}

}  // namespace
}  // namespace sluice::ops
