// gmm, the packing of its weights and gmm_weight_grad written once over (Unit, Pack): each instruction set
// instantiates them with its own. There are five products: of bf16, which may be rounded as they
// are packed; of rows that were rounded before, to codes of 8-bit floats; of bf16 and codes, which are
// decoded to bf16 as they are packed; of codes, whose sums are exact; and of codes in groups (groups.h).
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/abi/kernels.h"
#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/code_scales.h"
#include "ops/cpu/decode.h"
#include "ops/cpu/few_rows.h"
#include "ops/cpu/flush_subnormals.h"
#include "ops/cpu/groups.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/pack_parts.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/stream.h"
#include "ops/cpu/transposed_rows.h"

namespace sluice::ops {
namespace {

// Packed weights are padded to a multiple of this, because packers write whole squares.
template <class Unit>
constexpr int32_t kPackedKUnit = sizeof(typename Unit::Element) == 1 ? 64 : 32;

// The number of elements of a packed weight before the columns from `col` on (a multiple of kNr) and the
// elements of the sum from k0 on (a multiple of kKPart). Each panel has kNr columns over the whole sum of k,
// and spare room at its end.
template <class Unit>
int64_t packedOffset(int32_t col, int32_t k0, int32_t k) {
  static_assert(kPackedKUnit<Unit> % Unit::kKUnit == 0 && Unit::kKPart % kPackedKUnit<Unit> == 0);
  return col * roundUp(k, kPackedKUnit<Unit>) + int64_t{k0} * Unit::kNr;
}

// What the sources of gmm have in common, by the types of a and b.
template <class Unit, class Pack, class A, class B>
struct GmmSource {
  using Element = typename Unit::Element;
  using Sum = typename Unit::Sum;
  const GmmArgs& args;
  const A* const a = static_cast<const A*>(args.a.data);
  const B* const b = static_cast<const B*>(args.b.data);
  BFloat16* const c = static_cast<BFloat16*>(args.c.data);

  const Element* readyB(int32_t col, int32_t k0) const {
    if (args.packedB == nullptr) return nullptr;
    return static_cast<const Element*>(args.packedB) + packedOffset<Unit>(col, k0, args.k);
  }

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    if (!args.rowsA) return Pack::copyRows(sourceA(row, k0), args.a.ld, rows, k, dst);
    for (int32_t i = 0; i < rows; ++i)
      Pack::copyRows(sourceA(row + i, k0), 0, 1, k, dst + int64_t{i} * Unit::kAStride);
  }
  static constexpr int32_t kRowsAtOnce = 2 * Unit::kMr;
  Lines linesA(int32_t row, int32_t rows, int32_t k0) const {
    return linesOf(a + k0, args.a.ld, row, rows, smaller(Unit::kKPart, args.k - k0), args.rowsA);
  }
  static constexpr bool fetchesC() { return true; }
  Lines linesC(int32_t row, int32_t rows, int32_t col, int32_t cols) const {
    if (sharesLines<BFloat16>(col)) return {};
    return linesOf(c + row * args.c.ld + col, args.c.ld, rows, cols);
  }
  const A* sourceA(int32_t row, int32_t k0) const { return a + args.rowsA.of(row) * args.a.ld + k0; }
  int64_t strideA() const { return args.a.ld; }
  int64_t strideB() const { return args.b.ld; }
  bool liesTransposed() const { return args.transposeB; }
  int32_t length() const { return args.k; }
  Lines linesB(int32_t col, int32_t k0) const {
    const int32_t cols = smaller(Unit::kNr, args.n - col), length = smaller(Unit::kKPart, args.k - k0);
    if (const Element* const ready = readyB(col, k0)) return linesOf(ready, 0, 1, Unit::kNr * length);
    if (args.transposeB) return linesOf(sourceB(col, k0), args.b.ld, cols, length);
    return sharesLines<B>(col) ? Lines() : linesOf(sourceB(col, k0), args.b.ld, length, cols);
  }
  const B* sourceB(int32_t col, int32_t k0) const {
    return numberAt(b, args.transposeB ? col * args.b.ld + k0 : k0 * args.b.ld + col);
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const B* ahead) const {
    if (args.transposeB)
      Pack::panelOfColumns(sourceB(col, k0), args.b.ld, cols, k, dst, ahead);
    else
      Pack::panelOfRows(sourceB(col, k0), args.b.ld, cols, k, dst, ahead);
  }
  void store(int32_t row, int32_t rows, int32_t col, int32_t cols, const Sum* tile) const {
    float scaled[Unit::kNr];
    const BFloat16* const bias = args.bias == nullptr ? nullptr : args.bias + col;
    for (int32_t i = 0; i < rows; ++i, tile += Unit::kNr) {
      BFloat16* const to = c + (row + i) * args.c.ld + col;
      const float* from = scaled;
      if constexpr (__is_same(A, int8_t))
        from = withBias(dequantised(tile, row + i, col, cols, scaled), cols, 1, bias, scaled);
      else
        from = withBias(tile, cols, args.alpha, bias, scaled);
      if (cols == Unit::kNr)
        roundRow(from, Unit::kNr, to);
      else
        roundRow(from, cols, to);
    }
  }

 private:
  // A row of sums of codes times its scale and alpha, and then times the scales of its columns, if they have
  // some.
  const float* dequantised(const int32_t* sums, int32_t row, int32_t col, int32_t cols,
                           float (&scaled)[Unit::kNr]) const {
    const float ofRow = args.alpha * args.rowScale[row];
    const BlockScales& of = args.scaleB;
    if (of.data == nullptr) {
      for (int32_t j = 0; j < cols; ++j) scaled[j] = static_cast<float>(sums[j]) * ofRow;
      return scaled;
    }
    const float* const ofColumns =
        of.data + (args.transposeB ? (of.firstRow + col) * of.ld : of.firstColumn + col);
    for (int32_t j = 0; j < cols; ++j) scaled[j] = static_cast<float>(sums[j]) * ofRow * ofColumns[j];
    return scaled;
  }
};

// The numbers are multiplied as they lie in memory.
template <class Unit, class Pack>
struct PlainGmmSource : GmmSource<Unit, Pack, BFloat16, BFloat16> {
  static constexpr bool kRearrangesOnly = true;

  bool hasResultTiles() const { return this->args.bias == nullptr; }
  template <class Multiply>
  void withResultTile(int32_t row, int32_t col, const Multiply& multiply) const {
    multiply(ResultTile<BFloat16, false>{this->c + row * this->args.c.ld + col, this->args.c.ld,
                                         this->args.alpha, false});
  }
};

// b has codes, which become bf16 numbers as they are packed.
template <class Unit, class Pack, class B>
struct DecodedSource : GmmSource<Unit, Pack, BFloat16, B> {
  using Element = typename Unit::Element;
  static const Element* readyB(int32_t, int32_t) { return nullptr; }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const B* ahead) const {
    const GmmArgs& args = this->args;
    packParts<Unit, Pack>(args.transposeB, this->sourceB(col, k0), args.b.ld, cols, k, dst, ahead,
                          [&args, col, k0](const B* codes, int32_t r, int32_t rows, int32_t columns,
                                           BFloat16* to, int64_t ldTo) {
                            const Place first = args.transposeB ? Place{col, k0 + r} : Place{k0 + r, col};
                            decode(codes, args.b.ld, args.scaleB, first, rows, columns, to, ldTo);
                          });
  }
};

// The arguments of a product whose rounded factors have these scales.
template <class Args>
Args withScales(Args args, const FactorRounding& a, const FactorRounding& b) {
  args.alpha = args.alpha * a.scale.up * b.scale.up;
  return args;
}

// Both factors are rounded as they are packed; but a may have codes (uint8_t), which are decoded.
template <class Unit, class Pack, class A = BFloat16>
struct RoundedSource : GmmSource<Unit, Pack, A, BFloat16> {
  using Element = typename Unit::Element;
  using Plain = GmmSource<Unit, Pack, A, BFloat16>;
  const FactorRounding roundA{this->args.roundA, this->args.amaxA};
  const FactorRounding roundB{this->args.roundB, this->args.amaxB};

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    if constexpr (__is_same(A, BFloat16))
      if (roundA.isNone) return Plain::packA(row, rows, k0, k, dst);
    static_assert(Unit::kKPart % kMxBlock == 0);
    BFloat16 rounded[Unit::kKPart];
    for (int32_t i = 0; i < rows; ++i) {
      packedRow(this->sourceA(row + i, k0), {row + i, k0}, k, rounded);
      Pack::copyRows(static_cast<const BFloat16*>(rounded), 0, 1, k, dst + int64_t{i} * Unit::kAStride);
    }
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const BFloat16* ahead) const {
    if (roundB.isNone) return Plain::packB(col, cols, k0, k, dst, ahead);
    const GmmArgs& args = this->args;
    const Numbers whole = {this->b, args.b.ld, args.transposeB ? args.n : args.k,
                           args.transposeB ? args.k : args.n};
    const auto round = [&](const BFloat16* from, int32_t r, int32_t rows, int32_t columns, BFloat16* to,
                           int64_t ldTo) {
      if (roundB.info.isSquare) {
        const Place first = args.transposeB ? Place{col, k0 + r} : Place{k0 + r, col};
        roundSquares(roundB.info, whole, first, rows, columns, to, ldTo);
      } else if (args.transposeB) {
        for (int32_t i = 0; i < rows; ++i) roundAlong(roundB, from + i * args.b.ld, columns, to + i * ldTo);
      } else {
        roundDown(roundB, from, args.b.ld, rows, columns, to, ldTo);
      }
    };
    packParts<Unit, Pack>(args.transposeB, this->sourceB(col, k0), args.b.ld, cols, k, dst, ahead, round);
  }

 private:
  void packedRow(const BFloat16* from, Place, int32_t k, BFloat16* to) const {
    roundAlong(roundA, from, k, to);
  }
  void packedRow(const uint8_t* codes, Place first, int32_t k, BFloat16* to) const {
    const RowPowers& powers = this->args.powersA;
    decodeAlong(codes, powers.data + first.row * powers.ld + first.column / kMxBlock, k, to);
  }
};

template <class Unit, class Pack, class A = BFloat16, class B = BFloat16>
struct WeightGradSource {
  using Element = typename Unit::Element;
  const GmmWeightGradArgs& args;
  const A* const a = static_cast<const A*>(args.a.data);
  const B* const b = static_cast<const B*>(args.b.data);
  float* const wide = static_cast<float*>(args.c.data);
  BFloat16* const narrow = args.c.type == DType::kBF16 ? static_cast<BFloat16*>(args.c.data) : nullptr;
  const bool streams = canStream();

  static const Element* readyB(int32_t, int32_t) { return nullptr; }
  static bool liesTransposed() { return false; }
  int32_t length() const { return args.rows; }
  int64_t strideB() const { return args.b.ld; }
  Lines linesB(int32_t col, int32_t k0) const {
    if (sharesLines<B>(col)) return {};
    return linesOf(b + col, args.b.ld, k0, smaller(Unit::kKPart, args.rows - k0),
                   smaller(Unit::kNr, args.n - col), args.rowsB);
  }
  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const float* const scale = args.scale == nullptr ? nullptr : args.scale + k0;
    Pack::transposeScaled(a + k0 * args.a.ld + row, args.a.ld, scale, rows, k, dst);
  }
  bool fetchesC() const { return args.accumulate; }
  Lines linesC(int32_t row, int32_t rows, int32_t col, int32_t cols) const {
    const int64_t at = row * args.c.ld + col;
    if (narrow == nullptr ? sharesLines<float>(col) : sharesLines<BFloat16>(col)) return {};
    return narrow == nullptr ? linesOf(wide + at, args.c.ld, rows, cols)
                             : linesOf(narrow + at, args.c.ld, rows, cols);
  }
  static constexpr int32_t kRowsAtOnce = 96;  // whole lines of a, which is transposed
  Lines linesA(int32_t row, int32_t rows, int32_t k0) const {
    return linesOf(a + row, args.a.ld, k0, smaller(Unit::kKPart, args.rows - k0), rows, args.rowsA);
  }
  const B* sourceB(int32_t col, int32_t k0) const { return b + k0 * args.b.ld + col; }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const BFloat16* ahead) const {
    Pack::panelOfRows(sourceB(col, k0), args.b.ld, cols, k, dst, ahead);
  }
  void store(int32_t row, int32_t rows, int32_t col, int32_t cols, const float* tile) const {
    float scaled[Unit::kNr];
    for (int32_t i = 0; i < rows; ++i, tile += Unit::kNr) {
      const int64_t to = (row + i) * args.c.ld + col;
      const float* const from = timesAlpha(tile, cols, args.alpha, scaled);
      if (narrow != nullptr)
        storeNarrow(from, cols, narrow + to);
      else if (args.accumulate)
        addRow(from, cols, wide + to);
      else if (streams && cols == Unit::kNr)
        streamRow<Unit::kNr>(from, wide + to);
      else
        __builtin_memcpy(wide + to, from, sizeof(float) * static_cast<size_t>(cols));
    }
  }

  bool hasResultTiles() const {
    return narrow == nullptr ? streams || args.accumulate : streams && kLinesOfBf16;
  }
  template <class Multiply>
  void withResultTile(int32_t row, int32_t col, const Multiply& multiply) const {
    const int64_t at = row * args.c.ld + col;
    if (narrow == nullptr)
      multiply(ResultTile<float, true>{wide + at, args.c.ld, args.alpha, args.accumulate});
    else
      multiply(ResultTile<BFloat16, true>{narrow + at, args.c.ld, args.alpha, false});
  }

  // Whether the result is written past the caches, because it is not read soon; possible only if the rows of
  // a tile are whole lines.
  bool canStream() const {
    const size_t bytes = narrow == nullptr ? sizeof(float) : sizeof(BFloat16);
    return !args.accumulate && Unit::kNr * bytes % kStreamBytes == 0 &&
           args.c.ld * bytes % kStreamBytes == 0 && canStreamTo(args.c.data);
  }

 private:
  static constexpr bool kLinesOfBf16 = Unit::kNr * sizeof(BFloat16) % kStreamBytes == 0;

  static void addRow(const float* __restrict from, int32_t count, float* __restrict to) {
    for (int32_t j = 0; j < count; ++j) to[j] += from[j];
  }
  void storeNarrow(const float* __restrict from, int32_t count, BFloat16* __restrict to) const {
    if constexpr (kLinesOfBf16)
      if (streams && count == Unit::kNr) {
        BFloat16 rounded[Unit::kNr];
        roundRow(from, Unit::kNr, rounded);
        streamRow<Unit::kNr>(rounded, to);
        return;
      }
    if (args.accumulate)
      for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(widenBf16(to[j].bits) + from[j]);
    else
      roundRow(from, count, to);
  }
};

template <class Unit, class Pack>
struct PlainWeightGradSource : WeightGradSource<Unit, Pack> {
  static constexpr bool kRearrangesOnly = true;
};

// Rows of a, of b or of both are gathered as they are packed.
template <class Unit, class Pack>
struct GatheredWeightGradSource : WeightGradSource<Unit, Pack> {
  using Element = typename Unit::Element;
  using Plain = WeightGradSource<Unit, Pack>;

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const GmmWeightGradArgs& args = this->args;
    if (!args.rowsA) return Plain::packA(row, rows, k0, k, dst);
    constexpr int32_t kPart = 32;  // rows that are transposed at once
    BFloat16 gathered[kPart * kMostDown];
    for (int32_t i = 0; i < rows; i += kMostDown) {
      const int32_t count = smaller(kMostDown, rows - i);
      for (int32_t r = k0; r < k0 + k; r += kPart) {
        const int32_t length = smaller(kPart, k0 + k - r);
        for (int32_t j = 0; j < length; ++j)
          __builtin_memcpy(gathered + j * kMostDown, this->a + args.rowsA.of(r + j) * args.a.ld + row + i,
                           static_cast<size_t>(count) * sizeof(BFloat16));
        Pack::transposeScaled(gathered, kMostDown, args.scale == nullptr ? nullptr : args.scale + r, count,
                              length, dst + int64_t{i} * Unit::kAStride + r - k0);
      }
    }
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const BFloat16* ahead) const {
    const GmmWeightGradArgs& args = this->args;
    if (!args.rowsB) return Plain::packB(col, cols, k0, k, dst, ahead);
    // two rows of a panel are one matrix, wherever they lie; units that need more of them pad each part
    constexpr int32_t kStep = Unit::kKUnit <= 2 ? 2 : Unit::kKUnit;
    for (int32_t r = k0; r < k0 + k; r += kStep, dst += kStep * Unit::kNr) {
      const int32_t length = smaller(kStep, k0 + k - r);
      const BFloat16* const first = this->b + args.rowsB.of(r) * args.b.ld + col;
      if constexpr (kStep == 2) {
        const int64_t ld = length > 1 ? (args.rowsB.of(r + 1) - args.rowsB.of(r)) * args.b.ld : 0;
        Pack::panelOfRows(first, ld, cols, length, dst, static_cast<const BFloat16*>(nullptr));
      } else {
        BFloat16 gathered[kStep * Unit::kNr];
        for (int32_t j = 0; j < length; ++j)
          __builtin_memcpy(gathered + j * Unit::kNr, this->b + args.rowsB.of(r + j) * args.b.ld + col,
                           static_cast<size_t>(cols) * sizeof(BFloat16));
        Pack::panelOfRows(gathered, Unit::kNr, cols, length, dst, static_cast<const BFloat16*>(nullptr));
      }
    }
  }
};

// Both factors are rounded as they are packed: one in blocks after it was scaled, otherwise before. One may
// have codes (uint8_t), which are decoded.
template <class Unit, class Pack, class A, class B>
struct RoundedWeightGradSource : WeightGradSource<Unit, Pack, A, B> {
  using Element = typename Unit::Element;
  const FactorRounding roundA{this->args.roundA, this->args.amaxA};
  const FactorRounding roundB{this->args.roundB, this->args.amaxB};

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const GmmWeightGradArgs& args = this->args;
    BFloat16 rounded[kMxBlock * kMostDown];
    for (int32_t r = k0; r < k0 + k; r += kMxBlock) {
      const int32_t length = smaller(kMxBlock, k0 + k - r);
      for (int32_t i = 0; i < rows; i += kMostDown) {
        const int32_t count = smaller(kMostDown, rows - i);
        packedPart(roundA, args.scalesA, this->a + r * args.a.ld + row + i, args.a.ld, {r, row + i}, length,
                   count, rounded, kMostDown);
        Pack::transposeScaled(rounded, kMostDown, nullptr, count, length,
                              dst + int64_t{i} * Unit::kAStride + r - k0);
      }
    }
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const B* ahead) const {
    const GmmWeightGradArgs& args = this->args;
    const auto convert = [&](const B* from, int32_t r, int32_t rows, int32_t columns, BFloat16* to,
                             int64_t ldTo) {
      packedPart(roundB, !args.scalesA, from, args.b.ld, {k0 + r, col}, rows, columns, to, ldTo);
    };
    packParts<Unit, Pack>(false, this->sourceB(col, k0), args.b.ld, cols, k, dst, ahead, convert);
  }

 private:
  static_assert(Unit::kNr <= kMostDown);

  // Rows and columns from `first` on of a factor, which begin at `from`: part of one block of each column.
  void packedPart(const FactorRounding& by, bool, const uint8_t* from, int64_t ld, Place first, int32_t rows,
                  int32_t columns, BFloat16* to, int64_t ldTo) const {
    if (by.info.isScaled) return decodeScaled(from, ld, rows, columns, to, ldTo);
    decodeDown(from, ld, this->args.codes, first.row, this->args.rows, first.column, rows, columns, to, ldTo);
  }
  void packedPart(const FactorRounding& by, bool isScaled, const BFloat16* from, int64_t ld, Place first,
                  int32_t rows, int32_t columns, BFloat16* to, int64_t ldTo) const {
    if (!isScaled || this->args.scale == nullptr) return roundRows(by, from, ld, rows, columns, to, ldTo);
    const float* const scale = this->args.scale + first.row;
    if (by.info.isScaled) {
      roundRows(by, from, ld, rows, columns, to, ldTo);
      return scaleRows(to, ldTo, rows, columns, scale, to, ldTo);
    }
    BFloat16 scaled[kMxBlock * kMostDown];
    scaleRows(from, ld, rows, columns, scale, scaled, kMostDown);
    roundRows(by, scaled, kMostDown, rows, columns, to, ldTo);
  }

  static void scaleRows(const BFloat16* from, int64_t ld, int32_t rows, int32_t columns, const float* scale,
                        BFloat16* to, int64_t ldTo) {
    for (int32_t i = 0; i < rows; ++i)
      for (int32_t j = 0; j < columns; ++j)
        to[i * ldTo + j].bits = roundToBf16(widenBf16(from[i * ld + j].bits) * scale[i]);
  }
  static void roundRows(const FactorRounding& by, const BFloat16* from, int64_t ld, int32_t rows,
                        int32_t columns, BFloat16* to, int64_t ldTo) {
    if (!by.isNone) return roundDown(by, from, ld, rows, columns, to, ldTo);
    for (int32_t i = 0; i < rows; ++i)
      __builtin_memcpy(to + i * ldTo, from + i * ld, static_cast<size_t>(columns) * sizeof(BFloat16));
  }
};

template <class Unit>
size_t blockedScratchBytesBy(int32_t n, int32_t k) {
  return ScratchLayout<Unit>::bytes(n, k);
}

template <class Unit>
size_t ungatheredScratchBytesBy(int32_t n, int32_t k) {
  const size_t blocked = blockedScratchBytesBy<Unit>(n, k);
  const size_t few = FewRowsLayout<Unit>::bytes(n, k);
  const size_t most = blocked > few ? blocked : few;
  const size_t transposed = transposedScratchBytes<Unit>(k);
  return most > transposed ? most : transposed;
}

// b is packed part by part, also for few rows.
template <class Unit, class Source>
void packedProduct(const Source& source, const GmmArgs& args) {
  if (args.rows <= kFewRows && args.rows > 0 && args.packedB == nullptr)
    productByBlocks<Unit>(source, args.rows, args.n, args.k, static_cast<std::byte*>(args.scratch));
  else
    blockedProduct<Unit>(source, args.rows, args.n, args.k, args.scratch);
}

inline bool isRounded(Rounding a, Rounding b) { return a != Rounding::kNone || b != Rounding::kNone; }

// The product of few rows, which are read in place, of rows that were gathered at the end of the scratch.
template <class Unit>
GmmArgs withGathered(const GmmArgs& args) {
  auto* const rows = reinterpret_cast<BFloat16*>(static_cast<std::byte*>(args.scratch) +
                                                 ungatheredScratchBytesBy<Unit>(args.n, args.k));
  for (int32_t i = 0; i < args.rows; ++i)
    __builtin_memcpy(rows + int64_t{i} * args.k,
                     static_cast<const BFloat16*>(args.a.data) + args.rowsA.of(i) * args.a.ld,
                     static_cast<size_t>(args.k) * sizeof(BFloat16));
  GmmArgs gathered = args;
  gathered.a = {rows, args.k};
  gathered.rowsA = {};
  return gathered;
}

template <class Unit, class Pack>
void gmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  if (isRounded(args.roundA, args.roundB)) {
    const GmmArgs scaled = withScales(args, {args.roundA, args.amaxA}, {args.roundB, args.amaxB});
    return packedProduct<Unit>(RoundedSource<Unit, Pack>{{scaled}}, scaled);
  }
  if (args.rowsA && args.rows <= kFewRows) {
    gmmBy<Unit, Pack>(withGathered<Unit>(args));
    return;
  }
  if (transposedProduct<Unit, Pack>(args)) return;
  const PlainGmmSource<Unit, Pack> source{{args}};
  if (fewRowsProduct<Unit>(source, args.rows, args.n, args.k, args.scratch)) return;
  blockedProduct<Unit>(source, args.rows, args.n, args.k, args.scratch);
}

template <class Unit, class Pack>
void roundedCodesGmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  const GmmArgs scaled = withScales(args, {args.roundA, args.amaxA}, {args.roundB, args.amaxB});
  packedProduct<Unit>(RoundedSource<Unit, Pack, uint8_t>{{scaled}}, scaled);
}

template <class Unit, class Pack, class B>
void decodedGmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  packedProduct<Unit>(DecodedSource<Unit, Pack, B>{{args}}, args);
}

template <class Unit, class Pack>
void codesGmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  blockedProduct<Unit>(GmmSource<Unit, Pack, int8_t, int8_t>{args}, args.rows, args.n, args.k, args.scratch);
}

// A packed weight has the panels that the Unit reads, one after another, each over the whole sum, as packB()
// makes them: the same numbers as the weight, so that a product has the same bits with and without it.
template <class Unit>
size_t packedBytesBy(int32_t n, int32_t k, PackedScales) {
  if (n <= 0 || k <= 0) return 0;
  return static_cast<size_t>(packedOffset<Unit>(static_cast<int32_t>(roundUp(n, Unit::kNr)), 0, k)) *
         sizeof(typename Unit::Element);
}
inline size_t notPacked(int32_t, int32_t, PackedScales) { return 0; }

template <class Unit, class Source>
void packPanels(const Source& source, const PackWeightArgs& args) {
  const FlushSubnormals meaning;
  auto* const packed = static_cast<typename Unit::Element*>(args.packed);
  for (int32_t col = 0; col < args.n; col += Unit::kNr)
    for (int32_t k0 = 0; k0 < args.k; k0 += Unit::kKc)
      source.packB(col, smaller(Unit::kNr, args.n - col), k0, smaller(Unit::kKc, args.k - k0),
                   packed + packedOffset<Unit>(col, k0, args.k), nullptr);
}
template <class Unit, class Pack, class T>
void packWeightBy(const PackWeightArgs& args) {
  GmmArgs product = {};
  product.b = args.b;
  product.n = args.n;
  product.k = args.k;
  product.transposeB = args.transposeB;
  product.roundB = args.round;
  product.amaxB = args.amax;
  if constexpr (sizeof(T) != 1)
    if (args.round != Rounding::kNone) return packPanels<Unit>(RoundedSource<Unit, Pack>{{product}}, args);
  packPanels<Unit>(GmmSource<Unit, Pack, T, T>{product}, args);
}

template <class Unit>
size_t gmmScratchBytesBy(int32_t n, int32_t k) {
  return ungatheredScratchBytesBy<Unit>(n, k) + static_cast<size_t>(kFewRows) * k * sizeof(BFloat16);
}

template <class Unit, class Pack>
void weightGradBy(const GmmWeightGradArgs& args) {
  if (args.accumulate && args.rows <= 0) return;  // adding 0 would turn a -0 into 0
  const FlushSubnormals meaning;
  const auto run = [&args](const auto& source) {
    blockedProduct<Unit>(source, args.m, args.n, args.rows, args.scratch);
    if (source.streams) fenceStreams();  // the caller's signals come after the result
  };
  if (args.rowsA || args.rowsB) return run(GatheredWeightGradSource<Unit, Pack>{{args}});
  if (!isRounded(args.roundA, args.roundB)) return run(PlainWeightGradSource<Unit, Pack>{{args}});
  const GmmWeightGradArgs scaled = withScales(args, {args.roundA, args.amaxA}, {args.roundB, args.amaxB});
  if (args.a.type != DType::kBF16)
    return run(RoundedWeightGradSource<Unit, Pack, uint8_t, BFloat16>{{scaled}});
  if (args.b.type != DType::kBF16)
    return run(RoundedWeightGradSource<Unit, Pack, BFloat16, uint8_t>{{scaled}});
  run(RoundedWeightGradSource<Unit, Pack, BFloat16, BFloat16>{{scaled}});
}

// The length of the sum is the expert's number of rows, which is unknown beforehand: room for many blocks.
template <class Unit>
size_t weightGradScratchBytesBy(int32_t m, int32_t n) {
  (void)m;
  return ScratchLayout<Unit>::bytes(n, std::numeric_limits<int32_t>::max());
}

constexpr ProductTypes kWeightGradTypes[] = {
    {DType::kBF16, DType::kBF16, DType::kF32},    {DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kF8_E4M3, DType::kBF16, DType::kF32}, {DType::kF8_E4M3, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF8_E4M3, DType::kF32}, {DType::kBF16, DType::kF8_E4M3, DType::kBF16}};

// By (Unit, Pack) of bf16, of codes, and of codes in groups (groups.h).
template <class Unit, class Pack, class CodesUnit, class CodesPack, class GroupsUnit, class GroupsPack>
struct ProductsBy {
  static constexpr GmmKernels kGmms[] = {
      {kBf16Product, gmmBy<Unit, Pack>, packWeightBy<Unit, Pack, BFloat16>, gmmScratchBytesBy<Unit>,
       packedBytesBy<Unit>},
      {kRoundedCodesProduct, roundedCodesGmmBy<Unit, Pack>, packWeightBy<Unit, Pack, BFloat16>,
       gmmScratchBytesBy<Unit>, packedBytesBy<Unit>},
      {kDecodedProduct, decodedGmmBy<Unit, Pack, int8_t>, nullptr, gmmScratchBytesBy<Unit>, notPacked},
      {kDecodedHalvesProduct, decodedGmmBy<Unit, Pack, Nibbles>, nullptr, gmmScratchBytesBy<Unit>, notPacked},
      {kCodesProduct, codesGmmBy<CodesUnit, CodesPack>, packWeightBy<CodesUnit, CodesPack, int8_t>,
       blockedScratchBytesBy<CodesUnit>, packedBytesBy<CodesUnit>},
      {kGroupsProduct, groupsGmmBy<GroupsUnit, GroupsPack>, packGroupsBy<GroupsUnit, GroupsPack>,
       blockedScratchBytesBy<UnitGroups<GroupsUnit>>, groupsPackedBytesBy<GroupsUnit>}};
  static constexpr ProductKernels kAll = {kGmms,
                                          kWeightGradTypes,
                                          weightGradBy<Unit, Pack>,
                                          weightGradScratchBytesBy<Unit>,
                                          {Unit::kNr, Unit::kMc, Unit::kKc}};
};

}  // namespace
}  // namespace sluice::ops
