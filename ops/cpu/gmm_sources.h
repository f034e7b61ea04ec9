// What products multiply, and where their results go: the Sources (blocked_product.h) of gmm by the types of
// a and b, and of the packing of its weights. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/code_scales.h"
#include "ops/cpu/decode.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/rounding.h"
#include "runtime/abi/kernels.h"

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
  using Panel = PanelElement<Unit>;
  using Sum = typename Unit::Sum;
  const GmmArgs& args;
  const A* const a = static_cast<const A*>(args.a.data);
  const B* const b = static_cast<const B*>(args.b.data);
  BFloat16* const c = static_cast<BFloat16*>(args.c.data);

  const Panel* readyB(int32_t col, int32_t k0) const {
    if (args.packedB == nullptr) return nullptr;
    return static_cast<const Panel*>(args.packedB) + packedOffset<Unit>(col, k0, args.k);
  }

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    if (!args.rowsA) return Pack::copyRows(sourceA(row, k0), args.a.ld, rows, k, dst);
    for (int32_t i = 0; i < rows; ++i)
      Pack::copyRows(sourceA(row + i, k0), 0, 1, k, dst + offsetInA<Unit>(i, 0));
  }
  static constexpr int32_t kRowsAtOnce = 2 * Unit::kMr;
  Lines linesA(int32_t row, int32_t rows, int32_t k0) const {
    return makeLines(a + k0, args.a.ld, row, rows, smaller(Unit::kKPart, args.k - k0), args.rowsA);
  }
  static constexpr bool fetchesC() { return true; }
  Lines linesC(int32_t row, int32_t rows, int32_t col, int32_t cols) const {
    return linesOfColumns(c + row * args.c.ld + col, args.c.ld, rows, col, cols);
  }
  const A* sourceA(int32_t row, int32_t k0) const { return a + args.rowsA.of(row) * args.a.ld + k0; }
  int64_t strideA() const { return args.a.ld; }
  int64_t strideB() const { return args.b.ld; }
  bool liesTransposed() const { return args.transposeB; }
  int32_t length() const { return args.k; }
  Lines linesB(int32_t col, int32_t k0) const {
    const int32_t cols = smaller(Unit::kNr, args.n - col), length = smaller(Unit::kKPart, args.k - k0);
    if (const Panel* const ready = readyB(col, k0)) return makeLines(ready, 0, 1, Unit::kNr * length);
    if (args.transposeB) return makeLines(sourceB(col, k0), args.b.ld, cols, length);
    return linesOfColumns(sourceB(col, k0), args.b.ld, length, col, cols);
  }
  const B* sourceB(int32_t col, int32_t k0) const {
    return numberAt(b, args.transposeB ? col * args.b.ld + k0 : k0 * args.b.ld + col);
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const B* ahead) const {
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
    const float* const ofColumns = static_cast<const float*>(of.data) +
                                   (args.transposeB ? (of.firstRow + col) * of.ld : of.firstColumn + col);
    for (int32_t j = 0; j < cols; ++j) scaled[j] = static_cast<float>(sums[j]) * ofRow * ofColumns[j];
    return scaled;
  }
};

// The numbers are multiplied as they lie in memory. The panels of a second part follow those of the first.
template <class Unit, class Pack>
struct PlainGmmSource : GmmSource<Unit, Pack, BFloat16, BFloat16> {
  using Part = GmmSource<Unit, Pack, BFloat16, BFloat16>;
  using Panel = PanelElement<Unit>;
  static constexpr bool kRearrangesOnly = true;
  const int32_t ofFirst =
      static_cast<int32_t>(roundUp(this->args.n, Unit::kNr));  // columns before the second
  const Part second{this->args.second == nullptr ? this->args : *this->args.second};

  const Part& first() const { return *this; }
  int32_t columns() const { return this->args.second == nullptr ? this->args.n : ofFirst + this->args.n; }
  int32_t columnsFrom(int32_t col) const {
    partOf(col);
    return smaller(Unit::kNr, this->args.n - col);
  }
  const Panel* readyB(int32_t col, int32_t k0) const {
    const Part& part = partOf(col);
    return part.readyB(col, k0);
  }
  Lines linesB(int32_t col, int32_t k0) const {
    const Part& part = partOf(col);
    return part.linesB(col, k0);
  }
  Lines linesC(int32_t row, int32_t rows, int32_t col, int32_t cols) const {
    const Part& part = partOf(col);
    return part.linesC(row, rows, col, cols);
  }
  const BFloat16* sourceB(int32_t col, int32_t k0) const {
    const Part& part = partOf(col);
    return part.sourceB(col, k0);
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const BFloat16* ahead) const {
    const Part& part = partOf(col);
    part.packB(col, cols, k0, k, dst, ahead);
  }
  void store(int32_t row, int32_t rows, int32_t col, int32_t cols, const float* tile) const {
    const Part& part = partOf(col);
    part.store(row, rows, col, cols, tile);
  }
  bool hasResultTiles() const { return this->args.bias == nullptr; }
  template <class Multiply>
  void withResultTile(int32_t row, int32_t col, const Multiply& multiply) const {
    const Part& part = partOf(col);
    const Result& c = part.args.c;
    multiply(ResultTile<BFloat16, false>{part.c + row * c.ld + col, c.ld, this->args.alpha, false});
  }

 private:
  // `col` becomes a column of the part.
  const Part& partOf(int32_t& col) const {
    if (col < ofFirst || this->args.second == nullptr) return *this;
    col -= ofFirst;
    return second;
  }
};

// b has codes, which become bf16 numbers as they are packed.
template <class Unit, class Pack, class B>
struct DecodedSource : GmmSource<Unit, Pack, BFloat16, B> {
  using Panel = PanelElement<Unit>;
  static const Panel* readyB(int32_t, int32_t) { return nullptr; }
  // to[j][i] = element k0 + i of column col + j of a transposed b; at most kMaxDecoded elements.
  void decodeColumns(int32_t col, int32_t cols, int32_t k0, int32_t length, BFloat16* to,
                     int64_t ldTo) const {
    decode(this->sourceB(col, k0), this->args.b.ld, this->args.scaleB, Place{col, k0}, cols, length, to,
           ldTo);
  }
  // to[i][j] = element k0 + i of column col + j of a b that is not transposed; at most kMaxDecoded columns.
  void decodeRows(int32_t k0, int32_t length, int32_t col, int32_t cols, BFloat16* to, int64_t ldTo) const {
    decode(this->sourceB(col, k0), this->args.b.ld, this->args.scaleB, Place{k0, col}, length, cols, to,
           ldTo);
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const B* ahead) const {
    const GmmArgs& args = this->args;
    packParts<Unit, Pack>(args.transposeB, this->sourceB(col, k0), args.b.ld, cols, k, dst, ahead,
                          [&args, col, k0](const B* codes, int32_t r, int32_t rows, int32_t columns,
                                           BFloat16* to, int64_t ldTo) {
                            const Place first = args.transposeB ? Place{col, k0 + r} : Place{k0 + r, col};
                            decode(codes, args.b.ld, args.scaleB, first, rows, columns, to, ldTo);
                          });
  }
};

// b has codes, which the Unit decodes to panels that are wide already.
template <class Unit, class Pack, class B>
struct WideDecodedSource : DecodedSource<Unit, Pack, B> {
  using Codes = typename Unit::template CodePanels<B>;
  static_assert(Codes::kColumns == Unit::kNr && Unit::kKPart % Codes::kLine == 0);
  void packWide(int32_t col, int32_t cols, int32_t k0, int32_t k, typename Unit::Element* to) const {
    Codes(this->args).decode(*this, col, cols, k0, k, to);
  }
};

// Both factors are rounded as they are packed; but a may have codes (uint8_t), which are decoded.
template <class Unit, class Pack, class A = BFloat16>
struct RoundedSource : GmmSource<Unit, Pack, A, BFloat16> {
  using Element = typename Unit::Element;
  using Panel = PanelElement<Unit>;
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
      Pack::copyRows(static_cast<const BFloat16*>(rounded), 0, 1, k, dst + offsetInA<Unit>(i, 0));
    }
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const BFloat16* ahead) const {
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

}  // namespace
}  // namespace sluice::ops
