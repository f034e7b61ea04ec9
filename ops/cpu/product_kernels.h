// gmm, the packing of its weights and gmm_weight_grad written once over (Unit, Pack): each instruction set
// instantiates them with its own. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/abi/kernels.h"
#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/few_rows.h"
#include "ops/cpu/flush_subnormals.h"
#include "ops/cpu/stream.h"

namespace sluice::ops {
namespace {

// Packed weights are padded to a multiple of this.
constexpr int32_t kPackedKUnit = 32;

// The row of a finished tile times alpha, stored in `scaled`; if alpha is 1, the row itself.
template <int32_t kNr>
const float* timesAlpha(const float* row, int32_t cols, float alpha, float (&scaled)[kNr]) {
  if (alpha == 1.0f) return row;
  for (int32_t j = 0; j < cols; ++j) scaled[j] = row[j] * alpha;
  return scaled;
}

// The row of a finished tile times alpha, plus the bias of its columns unless that is null.
template <int32_t kNr>
const float* withBias(const float* row, int32_t cols, float alpha, const BFloat16* bias,
                      float (&scaled)[kNr]) {
  if (bias == nullptr) return timesAlpha(row, cols, alpha, scaled);
  for (int32_t j = 0; j < cols; ++j) scaled[j] = row[j] * alpha + widenBf16(bias[j].bits);
  return scaled;
}

// The number of elements of a packed weight before the columns from `col` on (a multiple of kNr) and the
// elements of the sum from k0 on (a multiple of kKc). Each panel has kNr columns over the whole sum of k, and
// spare room at its end because packers write whole squares.
template <class Unit>
int64_t packedOffset(int32_t col, int32_t k0, int32_t k) {
  static_assert(kPackedKUnit % Unit::kKUnit == 0 && Unit::kKc % kPackedKUnit == 0);
  return col * roundUp(k, kPackedKUnit) + int64_t{k0} * Unit::kNr;
}

template <class Unit, class Pack>
struct GmmSource {
  using Element = typename Unit::Element;
  const GmmArgs& args;
  const BFloat16* const a = static_cast<const BFloat16*>(args.a.data);
  const BFloat16* const b = static_cast<const BFloat16*>(args.b.data);
  BFloat16* const c = static_cast<BFloat16*>(args.c.data);

  const Element* readyB(int32_t col, int32_t k0) const {
    if (args.packedB == nullptr) return nullptr;
    return static_cast<const Element*>(args.packedB) + packedOffset<Unit>(col, k0, args.k);
  }

  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    Pack::copyRows(sourceA(row, k0), args.a.ld, rows, k, dst);
  }
  void fetchA(int32_t row, int32_t rows, int32_t k0) const {
    const int32_t length = smaller(Unit::kKc, args.k - k0);
    for (int32_t i = 0; i < rows; ++i)
      for (int32_t j = 0; j < length; j += kLineOfBf16) fetchSoon(sourceA(row + i, k0 + j));
  }
  const BFloat16* sourceA(int32_t row, int32_t k0) const { return a + row * args.a.ld + k0; }
  int64_t strideA() const { return args.a.ld; }
  int64_t strideB() const { return args.b.ld; }
  bool liesTransposed() const { return args.transposeB; }
  const BFloat16* sourceB(int32_t col, int32_t k0) const {
    return b + (args.transposeB ? col * args.b.ld + k0 : k0 * args.b.ld + col);
  }
  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Element* dst, const BFloat16* ahead) const {
    if (args.transposeB)
      Pack::panelOfColumns(sourceB(col, k0), args.b.ld, cols, k, dst, ahead);
    else
      Pack::panelOfRows(sourceB(col, k0), args.b.ld, cols, k, dst, ahead);
  }
  void store(int32_t row, int32_t rows, int32_t col, int32_t cols, const float* tile) const {
    float scaled[Unit::kNr];
    const BFloat16* const bias = args.bias == nullptr ? nullptr : args.bias + col;
    for (int32_t i = 0; i < rows; ++i, tile += Unit::kNr) {
      BFloat16* const to = c + (row + i) * args.c.ld + col;
      const float* const from = withBias(tile, cols, args.alpha, bias, scaled);
      if (cols == Unit::kNr)
        roundRow(from, Unit::kNr, to);
      else
        roundRow(from, cols, to);
    }
  }

 private:
  static void roundRow(const float* __restrict from, int32_t count, BFloat16* __restrict to) {
    for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(from[j]);
  }
};

template <class Unit, class Pack>
struct WeightGradSource {
  using Element = typename Unit::Element;
  const GmmWeightGradArgs& args;
  const BFloat16* const a = static_cast<const BFloat16*>(args.a.data);
  const BFloat16* const b = static_cast<const BFloat16*>(args.b.data);
  float* const wide = static_cast<float*>(args.c.data);
  BFloat16* const narrow = args.c.type == DType::kBF16 ? static_cast<BFloat16*>(args.c.data) : nullptr;
  const bool streams = canStream();

  static const Element* readyB(int32_t, int32_t) { return nullptr; }
  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    const float* const scale = args.scale == nullptr ? nullptr : args.scale + k0;
    Pack::transposeScaled(a + k0 * args.a.ld + row, args.a.ld, scale, rows, k, dst);
  }
  static void fetchA(int32_t, int32_t, int32_t) {}  // its lines are whole rows, which the hardware prefetches
  const BFloat16* sourceB(int32_t col, int32_t k0) const { return b + k0 * args.b.ld + col; }
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
        for (int32_t j = 0; j < Unit::kNr; ++j) rounded[j].bits = roundToBf16(from[j]);
        streamRow<Unit::kNr>(rounded, to);
        return;
      }
    if (args.accumulate)
      for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(widenBf16(to[j].bits) + from[j]);
    else
      for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(from[j]);
  }
};

template <class Unit, class Pack>
void gmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  const GmmSource<Unit, Pack> source{args};
  if (fewRowsProduct<Unit>(source, args.rows, args.n, args.k, args.scratch)) return;
  blockedProduct<Unit>(source, args.rows, args.n, args.k, args.scratch);
}

// A packed weight has the panels that the Unit reads, one after another, each over the whole sum, as packB()
// makes them: the same numbers as the weight, so that a product has the same bits with and without it.
template <class Unit>
size_t packedBytesBy(int32_t n, int32_t k) {
  if (n <= 0 || k <= 0) return 0;
  return static_cast<size_t>(packedOffset<Unit>(static_cast<int32_t>(roundUp(n, Unit::kNr)), 0, k)) *
         sizeof(typename Unit::Element);
}

template <class Unit, class Pack>
void packWeightBy(const PackWeightArgs& args) {
  GmmArgs product = {};
  product.b = args.b;
  product.transposeB = args.transposeB;
  const GmmSource<Unit, Pack> source{product};
  auto* const packed = static_cast<typename Unit::Element*>(args.packed);
  for (int32_t col = 0; col < args.n; col += Unit::kNr)
    for (int32_t k0 = 0; k0 < args.k; k0 += Unit::kKc)
      source.packB(col, smaller(Unit::kNr, args.n - col), k0, smaller(Unit::kKc, args.k - k0),
                   packed + packedOffset<Unit>(col, k0, args.k), nullptr);
}

template <class Unit>
size_t gmmScratchBytesBy(int32_t n, int32_t k) {
  const size_t blocked = ScratchLayout<Unit>::bytes(n, k > Unit::kKc);
  const size_t few = FewRowsLayout<Unit>::bytes(n, k);
  return blocked > few ? blocked : few;
}

template <class Unit, class Pack>
void weightGradBy(const GmmWeightGradArgs& args) {
  if (args.accumulate && args.rows <= 0) return;  // adding 0 would turn a -0 into 0
  const FlushSubnormals meaning;
  const WeightGradSource<Unit, Pack> source{args};
  blockedProduct<Unit>(source, args.m, args.n, args.rows, args.scratch);
  if (source.streams) fenceStreams();  // the caller's signals come after the result
}

// The length of the sum is the expert's number of rows, which is unknown beforehand: room for many blocks.
template <class Unit>
size_t weightGradScratchBytesBy(int32_t m, int32_t n) {
  (void)m;
  return ScratchLayout<Unit>::bytes(n, true);
}

constexpr ProductTypes kGmmTypes[] = {{DType::kBF16, DType::kBF16, DType::kBF16}};
constexpr ProductTypes kWeightGradTypes[] = {{DType::kBF16, DType::kBF16, DType::kF32},
                                             {DType::kBF16, DType::kBF16, DType::kBF16}};

template <class Unit, class Pack>
consteval ProductKernels productsBy() {
  return {kGmmTypes,
          kWeightGradTypes,
          gmmBy<Unit, Pack>,
          packWeightBy<Unit, Pack>,
          weightGradBy<Unit, Pack>,
          gmmScratchBytesBy<Unit>,
          packedBytesBy<Unit>,
          weightGradScratchBytesBy<Unit>};
}

}  // namespace
}  // namespace sluice::ops
