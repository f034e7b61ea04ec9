// The Sources (blocked_product.h) of gmm_weight_grad. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/code_scales.h"
#include "ops/cpu/decode.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/stream.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class Unit, class Pack, class A = BFloat16, class B = BFloat16>
struct WeightGradSource {
  using Element = typename Unit::Element;
  using Panel = PanelElement<Unit>;
  const GmmWeightGradArgs& args;
  const A* const a = static_cast<const A*>(args.a.data);
  const B* const b = static_cast<const B*>(args.b.data);
  float* const wide = static_cast<float*>(args.c.data);
  BFloat16* const narrow = args.c.type == DType::kBF16 ? static_cast<BFloat16*>(args.c.data) : nullptr;
  const bool streams = canStream();

  static const Panel* readyB(int32_t, int32_t) { return nullptr; }
  static bool liesTransposed() { return false; }
  int32_t length() const { return args.rows; }
  int64_t strideB() const { return args.b.ld; }
  Lines linesB(int32_t col, int32_t k0) const {
    return linesOfColumns(b + col, args.b.ld, smaller(Unit::kKPart, args.rows - k0), col,
                          smaller(Unit::kNr, args.n - col), args.rowsB, k0);
  }
  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const float* const scale = args.scale == nullptr ? nullptr : args.scale + k0;
    Pack::transposeScaled(a + k0 * args.a.ld + row, args.a.ld, scale, rows, k, dst);
  }
  bool fetchesC() const { return args.accumulate; }
  Lines linesC(int32_t row, int32_t rows, int32_t col, int32_t cols) const {
    const int64_t at = row * args.c.ld + col;
    return narrow == nullptr ? linesOfColumns(wide + at, args.c.ld, rows, col, cols)
                             : linesOfColumns(narrow + at, args.c.ld, rows, col, cols);
  }
  static constexpr int32_t kRowsAtOnce = 96;  // whole lines of a, which is transposed
  // The columns of a that are gathered or rounded before they are packed: whole groups, if groups matter.
  static constexpr int32_t kColumnsAtOnce =
      InterleavesRows<Unit> ? kMaxDown / Unit::kMr * Unit::kMr : kMaxDown;
  Lines linesA(int32_t row, int32_t rows, int32_t k0) const {
    return makeLines(a + row, args.a.ld, k0, smaller(Unit::kKPart, args.rows - k0), rows, args.rowsA);
  }
  const B* sourceB(int32_t col, int32_t k0) const { return b + k0 * args.b.ld + col; }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const BFloat16* ahead) const {
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
    else if constexpr (kLinesOfBf16)
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
  using Panel = PanelElement<Unit>;
  using Plain = WeightGradSource<Unit, Pack>;

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const GmmWeightGradArgs& args = this->args;
    if (!args.rowsA) return Plain::packA(row, rows, k0, k, dst);
    constexpr int32_t kPart = 32;  // rows that are transposed at once
    BFloat16 gathered[kPart * kMaxDown];
    for (int32_t i = 0; i < rows; i += Plain::kColumnsAtOnce) {
      const int32_t count = smaller(Plain::kColumnsAtOnce, rows - i);
      for (int32_t r = k0; r < k0 + k; r += kPart) {
        const int32_t length = smaller(kPart, k0 + k - r);
        for (int32_t j = 0; j < length; ++j)
          __builtin_memcpy(gathered + j * kMaxDown, this->a + args.rowsA.of(r + j) * args.a.ld + row + i,
                           static_cast<size_t>(count) * sizeof(BFloat16));
        Pack::transposeScaled(gathered, kMaxDown, args.scale == nullptr ? nullptr : args.scale + r, count,
                              length, dst + offsetInA<Unit>(i, r - k0));
      }
    }
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const BFloat16* ahead) const {
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
  using Panel = PanelElement<Unit>;
  using Plain = WeightGradSource<Unit, Pack, A, B>;
  const FactorRounding roundA{this->args.roundA, this->args.amaxA};
  const FactorRounding roundB{this->args.roundB, this->args.amaxB};

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const GmmWeightGradArgs& args = this->args;
    BFloat16 rounded[kMxBlock * kMaxDown];
    for (int32_t r = k0; r < k0 + k; r += kMxBlock) {
      const int32_t length = smaller(kMxBlock, k0 + k - r);
      for (int32_t i = 0; i < rows; i += Plain::kColumnsAtOnce) {
        const int32_t count = smaller(Plain::kColumnsAtOnce, rows - i);
        packedPart(roundA, args.scalesA, this->a + r * args.a.ld + row + i, args.a.ld, {r, row + i}, length,
                   count, rounded, kMaxDown);
        Pack::transposeScaled(rounded, kMaxDown, nullptr, count, length, dst + offsetInA<Unit>(i, r - k0));
      }
    }
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const B* ahead) const {
    const GmmWeightGradArgs& args = this->args;
    const auto convert = [&](const B* from, int32_t r, int32_t rows, int32_t columns, BFloat16* to,
                             int64_t ldTo) {
      packedPart(roundB, !args.scalesA, from, args.b.ld, {k0 + r, col}, rows, columns, to, ldTo);
    };
    packParts<Unit, Pack>(false, this->sourceB(col, k0), args.b.ld, cols, k, dst, ahead, convert);
  }

 private:
  static_assert(Unit::kNr <= kMaxDown);

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
    BFloat16 scaled[kMxBlock * kMaxDown];
    scaleRows(from, ld, rows, columns, scale, scaled, kMaxDown);
    roundRows(by, scaled, kMaxDown, rows, columns, to, ldTo);
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

}  // namespace
}  // namespace sluice::ops
