// Products with a transposed weight, b [n, k], of more rows than columns.h is for: computed as the transposed
// product, whose rows are those of b, read in place, and whose columns are the rows of a. So only a is
// transposed and packed, which is smaller.
//
//   for blocks of at most kBlockColumns rows of a: pack them, [k / 2][kNr] pairs for each panel of at most
//   kNr
//     for blocks of kBlockRows rows of b
//       for blocks of kBlockK of the sum
//         for groups of kMr rows of b
//           for panels of a: tile += the group in place * the panel
//       store the tiles, transposed
//
// The sum of an element runs in the order of blocked_product.h, and the products of the Unit are the same
// with their factors exchanged, so both give the same bits. Internal linkage: see there.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/square.h"

namespace sluice::ops {
namespace {

// A Unit for this has, besides the members in blocked_product.h, kPartOfVector (columns of which a tile has a
// multiple without more work) and
//   multiplyInPlace(a, lda, b, k, rows, cols, tile, ahead): tile += a * b like multiply(), for rows of bf16
//   in memory and a k that is a multiple of kKUnit
template <class Unit, class Pack>
class TransposedRows {
 public:
  using Element = typename Unit::Element;

  static size_t scratchBytes(int32_t k) {
    return kTileBytes + kPairBytes + static_cast<size_t>(kBlockColumns) * roundUp(k, kPad) * sizeof(Element);
  }

  explicit TransposedRows(const GmmArgs& args)
      : args_(args),
        tiles_(static_cast<float*>(args.scratch)),
        pairs_(reinterpret_cast<uint32_t*>(static_cast<std::byte*>(args.scratch) + kTileBytes)),
        panels_(reinterpret_cast<Element*>(static_cast<std::byte*>(args.scratch) + kTileBytes + kPairBytes)) {
  }

  void run() {
    const int32_t blocks = (args_.rows - 1) / kBlockColumns + 1;
    const auto most = static_cast<int32_t>(roundUp((args_.rows - 1) / blocks + 1, Unit::kPartOfVector));
    for (int32_t col = 0; col < args_.rows; col += most) {
      begin(col, smaller(most, args_.rows - col));
      for (int32_t row = 0; row < args_.n; row += kBlockRows) multiplyRows(row);
    }
  }

 private:
  static constexpr int32_t kBlockColumns = 4 * Unit::kNr, kBlockRows = 96;
  static constexpr int32_t kBlockK = Unit::kKPart;
  static constexpr int64_t kTileFloats = int64_t{Unit::kMr} * Unit::kNr;
  static constexpr size_t kTileBytes =
      kBlockRows / Unit::kMr * (kBlockColumns / Unit::kNr) * kTileFloats * sizeof(float);
  static constexpr size_t kPairBytes = kBlockRows / 2 * kBlockColumns * sizeof(uint32_t);
  static constexpr int32_t kPad = 64;  // packers write whole squares

  const BFloat16* b(int32_t row, int32_t k0) const {
    return static_cast<const BFloat16*>(args_.b.data) + row * args_.b.ld + k0;
  }
  Element* panel(int32_t p, int32_t k0) const {
    return panels_ + (p * roundUp(args_.k, kPad) + k0) * Unit::kNr;
  }

  // Packs the columns [col, col + cols) of the result, which are rows of a, in panels of about the same
  // width.
  void begin(int32_t col, int32_t cols) {
    col_ = col;
    cols_ = cols;
    const int32_t panels = (cols - 1) / Unit::kNr + 1;
    width_ = static_cast<int32_t>(roundUp((cols - 1) / panels + 1, Unit::kPartOfVector));
    for (int32_t p = 0; p * width_ < cols; ++p) packPanel(col + p * width_, widthOf(p), panel(p, 0));
  }
  int32_t widthOf(int32_t p) const { return smaller(width_, cols_ - p * width_); }

  void packPanel(int32_t row, int32_t rows, Element* to) const {
    constexpr const BFloat16* kNothing = nullptr;
    const auto* const a = static_cast<const BFloat16*>(args_.a.data);
    if (!args_.rowsA)
      return Pack::panelOfColumns(a + row * args_.a.ld, args_.a.ld, rows, args_.k, to, kNothing);
    BFloat16 gathered[Unit::kNr * kPad];
    for (int32_t k0 = 0; k0 < args_.k; k0 += kPad, to += kPad * Unit::kNr) {
      const int32_t length = smaller(kPad, args_.k - k0);
      for (int32_t i = 0; i < rows; ++i)
        __builtin_memcpy(gathered + i * kPad, a + args_.rowsA.of(row + i) * args_.a.ld + k0,
                         static_cast<size_t>(length) * sizeof(BFloat16));
      Pack::panelOfColumns(gathered, kPad, rows, length, to, kNothing);
    }
  }

  void multiplyRows(int32_t row) {
    const int32_t end = smaller(args_.n, row + kBlockRows);
    for (int32_t k0 = 0; k0 < args_.k; k0 += kBlockK) {
      const int32_t k = smaller(kBlockK, args_.k - k0);
      float* tile = tiles_;
      for (int32_t first = row; first < end; first += Unit::kMr) {
        const int32_t rows = smaller(Unit::kMr, end - first);
        Ahead ahead;
        ahead.b = linesAfter(row, first + rows, end, k0, k);
        ahead.b.spreadOver((cols_ - 1) / width_ * (k / Unit::kFetchEvery) + k / Unit::kFetchEvery);
        for (int32_t p = 0; p * width_ < cols_; ++p, tile += kTileFloats) {
          if (k0 == 0) __builtin_memset(tile, 0, kTileFloats * sizeof(float));
          Unit::multiplyInPlace(b(first, k0), args_.b.ld, panel(p, k0), k, rows, widthOf(p), tile, ahead);
          if (k0 + k >= args_.k) round(first, rows, p * width_, widthOf(p), tile);
        }
      }
    }
    store(row, end);
  }

  const float* scaled(const float* tile, int32_t column, int32_t cols, float (&to)[Unit::kNr]) const {
    if (args_.bias == nullptr) return timesAlpha(tile, cols, args_.alpha, to);
    const float bias = widenBf16(args_.bias[column].bits);
    for (int32_t j = 0; j < cols; ++j) to[j] = tile[j] * args_.alpha + bias;
    return to;
  }

  // What is read of b after the rows before `row`, in a block from `first` to `end`.
  Lines linesAfter(int32_t first, int32_t row, int32_t end, int32_t k0, int32_t k) const {
    if (row >= end) {
      k0 += k;
      k0 < args_.k ? row = first : k0 = 0;
    }
    if (row >= args_.n) return {};
    return linesOf(b(row, k0), args_.b.ld, smaller(Unit::kMr, args_.n - row), smaller(kBlockK, args_.k - k0));
  }

  // A finished tile: rows of it are columns of the result, from `col` of the block on.
  void round(int32_t row, int32_t rows, int32_t col, int32_t cols, const float* tile) const {
    static_assert(Unit::kMr % 2 == 0 && kBlockRows % Unit::kMr == 0);
    uint32_t* to = pairs_ + row % kBlockRows / 2 * kBlockColumns + col;
    for (int32_t i = 0; i < rows; i += 2, to += kBlockColumns) {
      BFloat16 rounded[2][Unit::kNr] = {};
      float times[Unit::kNr];
      for (int32_t h = 0; h < smaller(2, rows - i); ++h, tile += Unit::kNr)
        roundRow(scaled(tile, row + i + h, cols, times), cols, rounded[h]);
      for (int32_t j = 0; j < Unit::kNr; ++j) to[j] = rounded[0][j].bits | uint32_t{rounded[1][j].bits} << 16;
    }
  }

  // The columns [row, end) of the result.
  void store(int32_t row, int32_t end) const {
    for (int32_t i = row; i < end; i += 2 * kSquare)
      for (int32_t j = 0; j < cols_; j += kSquare) {
        const uint32_t* const from = pairs_ + (i - row) / 2 * kBlockColumns + j;
        BFloat16* const to = static_cast<BFloat16*>(args_.c.data) + (col_ + j) * args_.c.ld + i;
        constexpr int64_t kStride = kBlockColumns * sizeof(uint32_t);
        if (end - i >= 2 * kSquare && cols_ - j >= kSquare) {
          transposeSquare(from, kStride, to, args_.c.ld * 2);
          continue;
        }
        BFloat16 square[kSquare][2 * kSquare];
        transposeSquare(from, kStride, square, sizeof square[0]);
        for (int32_t c = 0; c < smaller(kSquare, cols_ - j); ++c)
          __builtin_memcpy(to + c * args_.c.ld, square[c],
                           static_cast<size_t>(smaller(2 * kSquare, end - i)) * 2);
      }
  }

  const GmmArgs& args_;
  float* const tiles_;
  uint32_t* const pairs_;  // of columns of the result: [kBlockRows / 2][kBlockColumns]
  Element* const panels_;
  int32_t col_ = 0, cols_ = 0;  // of the block
  int32_t width_ = 0;           // of its panels; the last one may be narrower
};

template <class Unit>
size_t transposedScratchBytes(int32_t k) {
  if constexpr (requires { Unit::multiplyInPlace; })
    return TransposedRows<Unit, void>::scratchBytes(k);
  else
    return 0;
}

// Returns false if another product is faster, or the only one.
template <class Unit, class Pack>
bool transposedProduct(const GmmArgs& args) {
  if constexpr (requires { Unit::multiplyInPlace; })
    if (args.transposeB && args.packedB == nullptr && args.rows > Unit::Square::kMostRows && args.k > 0 &&
        args.k % Unit::kKUnit == 0) {
      TransposedRows<Unit, Pack>(args).run();
      return true;
    }
  return false;
}

}  // namespace
}  // namespace sluice::ops
