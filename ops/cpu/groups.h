// Products of codes of 8 bits and codes of 4 bits with a scale for each group of the sum: exact sums over
// stretches of a group, which are added up in fp32 in order, so that all units give the same bits.
//
// Packed part of a: in each row the codes of its stretches one after another, each padded to kKUnit elements,
// and from kSumsAt on an int32 for each stretch: the sum of its codes, times kHalf if there are no zeros.
// Packed part of b: the panels of its stretches, then their scales [stretch][kNr] in fp32, or
// [stretch][2][kNr] with zeros. In memory that lasts, two elements of a panel share a byte, pads of
// stretches are left out, and scales of 16 bits and their zeros have the types that they are given in.
//
// The unit of codes multiplies one stretch. Or it has fetchesPanel(rows) of blocked_product.h and
// multiplyGroups(part, rows, first, tile, ahead), which is multiply() there with both forms of b. Internal
// linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/flush_subnormals.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/result_rows.h"
#include "ops/cpu/scales.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// How the sum of a product is cut.
struct Stretches {
  int32_t group = 0;         // of numbers that share a scale
  int32_t length = 0;        // of a stretch; the last one may be shorter
  int32_t perNumber = 1;     // numbers of fp32 per column and stretch: 2 with zeros
  DType type = DType::kF32;  // of scales in memory that lasts

  Stretches(int32_t ofGroup, bool hasZeros, DType ofScales)
      : group(ofGroup), length(smaller(ofGroup, kMaxStretch)), perNumber(hasZeros ? 2 : 1), type(ofScales) {}
  int32_t count(int32_t k) const { return k > 0 ? (k - 1) / length + 1 : 0; }
  bool areWide() const { return type == DType::kF32; }
  // The bytes of a column and stretch in memory that lasts.
  int32_t scaleBytes() const { return areWide() ? 4 * perNumber : 1 + perNumber; }
  // Widens the scales and zeros of `columns` columns in memory that lasts to fp32; the scales have 16 bits.
  void widen(const void* lasting, int32_t stretches, int32_t columns, float* to) const {
    const auto* from = static_cast<const char*>(lasting);
    for (int32_t s = 0; s < stretches; ++s, from += columns * scaleBytes(), to += columns * perNumber) {
      widenScales(type, reinterpret_cast<const uint16_t*>(from), columns, to);
      if (perNumber == 1) continue;
      const auto* const zeros = reinterpret_cast<const int8_t*>(from + 2 * columns);
      for (int32_t j = 0; j < columns; ++j) to[columns + j] = countedFrom(zeros[j], to[j]);
    }
  }
};

// A packed part of the sum of a tile.
struct GroupsPart {
  const int8_t* a;
  const int8_t* b;
  const float* scales;
  int32_t k, stretch;
  bool hasZeros;
  bool isPacked;       // b is in the form that lasts
  int32_t scaleBytes;  // of a column and stretch in that form
};

// By a unit of codes that neither shifts them nor needs more room in rows of a than `Codes::kSumsAt`.
template <class Codes>
struct UnitGroups {
  using Element = typename Codes::Element;
  using PanelElement = ops::PanelElement<Codes>;
  using Sum = float;
  static constexpr int32_t kMr = Codes::kMr;
  static constexpr int32_t kNr = Codes::kNr;
  static constexpr int32_t kMc = Codes::kMc;
  static constexpr bool kMultipliesGroups =
      requires(Ahead& ahead) { Codes::multiplyGroups(GroupsPart(), 0, true, nullptr, ahead); };
  static constexpr int32_t kKPart = kMultipliesGroups ? Codes::kSumsAt : kMaxStretch;
  static constexpr int32_t kKc = sizeof(Element) == 1 ? 4 * kMaxStretch : kKPart;
  static constexpr int32_t kAStride = Codes::kAStride;
  static constexpr int32_t kKUnit = 32;  // the smallest group
  static constexpr int32_t kFetchEvery = smaller(32, Codes::kFetchEvery);
  static constexpr int32_t kMaxStretches = kKPart / 32;
  // each stretch is padded to 64 at most, and packers write squares of 64
  static constexpr int64_t kPanelElements = int64_t{kMaxStretches + 1} * 64 * kNr;
  static constexpr int64_t kScalesBytes = int64_t{kMaxStretches} * 2 * kNr * 4;
  static constexpr int64_t kPanelBytes = kPanelElements * sizeof(PanelElement) + kScalesBytes;

  // In the form that lasts, bytes have an element each of one run of a panel and of the next run.
  static constexpr int32_t kRun = kMultipliesGroups ? kNr * Codes::kKUnit / 2 : 64;

  // `fromPacked`: panels of b are in the form that lasts.
  UnitGroups(const Stretches& stretches, bool fromPacked) : stretches_(stretches), fromPacked_(fromPacked) {}

  static int32_t padded(int32_t length) { return static_cast<int32_t>(roundUp(length, Codes::kKUnit)); }

  static bool fetchesPanel(int32_t rows)
    requires(kMultipliesGroups)
  {
    return Codes::fetchesPanel(rows);
  }

  template <class AnyAhead>
  void multiply(const Element* a, const PanelElement* b, int32_t k, int32_t rows, int32_t cols, bool first,
                float* tile, AnyAhead& ahead) {
    if constexpr (kMultipliesGroups) {
      const int64_t codesBytes = fromPacked_ ? roundUp(k, 32) * kNr / 2 : kPanelElements;
      const auto* scales = reinterpret_cast<const float*>(b + codesBytes);
      alignas(64) float widened[kMaxStretches * 2 * kNr];
      if (fromPacked_ && !stretches_.areWide()) {
        stretches_.widen(scales, stretches_.count(k), kNr, widened);
        scales = widened;
      }
      const bool hasZeros = stretches_.perNumber == 2;
      Codes::multiplyGroups(
          {a, b, scales, k, stretches_.length, hasZeros, fromPacked_, stretches_.scaleBytes()}, rows, first,
          tile, ahead);
    } else {
      multiplyStretches(a, b, k, rows, cols, first, tile, ahead);
    }
  }

 private:
  void multiplyStretches(const Element* a, const PanelElement* b, int32_t k, int32_t rows, int32_t cols,
                         bool first, float* tile, Ahead& ahead) {
    if (first) __builtin_memset(tile, 0, sizeof(float) * static_cast<size_t>(rows * kNr));
    const auto* scales = reinterpret_cast<const float*>(b + kPanelElements);
    const auto* sumsOfA = reinterpret_cast<const char*>(a + Codes::kSumsAt);
    alignas(64) int32_t sums[kMr * kNr];
    for (int32_t at = 0; at < k; at += stretches_.length, sumsOfA += sizeof(int32_t)) {
      codes_.multiply(a, b, smaller(stretches_.length, k - at), rows, cols, true, sums, ahead);
      for (int32_t i = 0; i < rows; ++i) {
        int32_t ofA;
        __builtin_memcpy(&ofA, sumsOfA + i * kAStride * sizeof(Element), sizeof ofA);
        stretches_.perNumber == 1 ? add(sums + i * kNr, ofA, scales, tile + i * kNr)
                                  : add(sums + i * kNr, ofA, scales, scales + kNr, tile + i * kNr);
      }
      a += padded(stretches_.length);
      b += padded(stretches_.length) * kNr;
      scales += stretches_.perNumber * kNr;
    }
  }

  // g++ takes short loops apart before it could vectorise them.
  static void add(const int32_t* __restrict sums, int32_t minus, const float* __restrict scales,
                  float* __restrict to) {
#pragma GCC unroll 1
    for (int32_t j = 0; j < kNr; ++j) to[j] += static_cast<float>(sums[j] - minus) * scales[j];
  }
  static void add(const int32_t* __restrict sums, int32_t ofA, const float* __restrict scales,
                  const float* __restrict zeros, float* __restrict to) {
    const auto ofRow = static_cast<float>(ofA);
#pragma GCC unroll 1
    for (int32_t j = 0; j < kNr; ++j) to[j] += static_cast<float>(sums[j]) * scales[j] + ofRow * zeros[j];
  }

  const Stretches stretches_;
  const bool fromPacked_;
  Codes codes_;
};

// It says where codes and scales lie in packed memory.
template <class Unit>
struct PackedGroups {
  const Stretches stretches;

  // Before the columns from `col` on (a multiple of kNr) and the numbers of the sum from k0 on (a multiple of
  // kKPart).
  int64_t offset(int32_t col, int32_t k0, int32_t k) const {
    return col / Unit::kNr * panelBytes(k) + codesBytes(k0) + scalesBytes(stretches.count(k0));
  }
  int64_t panelBytes(int32_t k) const { return codesBytes(k) + scalesBytes(stretches.count(k)); }
  // Each stretch begins at a multiple of 32, except in a sum of less than that.
  static int64_t codesBytes(int32_t k) { return roundUp(k, 32) * Unit::kNr / 2; }
  int64_t scalesBytes(int32_t count) const { return int64_t{count} * stretches.scaleBytes() * Unit::kNr; }
};

template <class Codes, class Pack>
struct GroupsSource {
  using Unit = UnitGroups<Codes>;
  using Element = typename Unit::Element;
  using Panel = PanelElement<Unit>;
  static constexpr int32_t kNr = Unit::kNr;
  const GmmArgs& args;
  const Stretches stretches;
  const int8_t* const a = static_cast<const int8_t*>(args.a.data);
  const Nibbles* const b = static_cast<const Nibbles*>(args.b.data);
  BFloat16* const c = static_cast<BFloat16*>(args.c.data);

  explicit GroupsSource(const GmmArgs& given)
      : args(given),
        stretches(given.transposeB ? given.scaleB.columns : given.scaleB.rows, given.scaleB.zero != nullptr,
                  given.scaleB.type) {}

  Unit unit() const { return Unit(stretches, multipliesPacked()); }
  const Panel* readyB(int32_t col, int32_t k0) const {
    return multipliesPacked() ? reinterpret_cast<const Panel*>(packed(col, k0)) : nullptr;
  }
  Lines linesB(int32_t col, int32_t k0) const {
    if (!multipliesPacked()) return {};  // packB() fetches
    const int32_t k = smaller(Unit::kKPart, args.k - k0);
    return makeLines(packed(col, k0), 0, 1, static_cast<int32_t>(packed(col, k0 + k) - packed(col, k0)));
  }
  static constexpr bool fetchesC() { return true; }
  Lines linesC(int32_t row, int32_t rows, int32_t col, int32_t cols) const {
    return linesOfColumns(c + row * args.c.ld + col, args.c.ld, rows, col, cols);
  }
  static constexpr int32_t kRowsAtOnce = 2 * Unit::kMr;
  Lines linesA(int32_t row, int32_t rows, int32_t k0) const {
    return makeLines(a + k0, args.a.ld, row, rows, smaller(Unit::kKPart, args.k - k0), {});
  }
  void packA(int32_t row, int32_t rows, int32_t k0, int32_t k, Element* dst) const {
    for (int32_t at = 0; at < k; at += stretches.length) {
      const int32_t length = smaller(stretches.length, k - at);
      const int8_t* const from = a + row * args.a.ld + k0 + at;
      Pack::copyRows(from, args.a.ld, rows, length,
                     dst + at / stretches.length * Unit::padded(stretches.length));
      for (int32_t i = 0; i < rows; ++i) {
        int32_t sum = 0;
        for (int32_t j = 0; j < length; ++j) sum += from[i * args.a.ld + j];
        if (stretches.perNumber == 1) sum *= kHalf;
        __builtin_memcpy(reinterpret_cast<char*>(dst + int64_t{i} * Unit::kAStride + Codes::kSumsAt) +
                             at / stretches.length * 4,
                         &sum, 4);
      }
    }
  }

  void packB(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst, const Nibbles*) const {
    if (args.packedB != nullptr) return expandPanel(col, k0, k, dst);
    packPanel(col, cols, k0, k, dst);
    copyScales(col, cols, k0, k, reinterpret_cast<float*>(dst + Unit::kPanelElements));
  }

  void store(int32_t row, int32_t rows, int32_t col, int32_t cols, const float* tile) const {
    float scaled[kNr];
    const BFloat16* const bias = args.bias == nullptr ? nullptr : args.bias + col;
    for (int32_t i = 0; i < rows; ++i, tile += kNr)
      roundRow(withBias(tile, cols, args.alpha * args.rowScale[row + i], bias, scaled), cols,
               c + (row + i) * args.c.ld + col);
  }

  // Both parts of the panel in the form that lasts, of codes that were made by packPanel().
  void keepPanel(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* panel, std::byte* packed) const {
    __builtin_memset(panel, 0, static_cast<size_t>(Unit::kPanelBytes));
    packPanel(col, cols, k0, k, panel);
    for (int32_t at = 0; at < k; at += stretches.length, panel += Unit::padded(stretches.length) * kNr) {
      const int64_t elements = roundUp(smaller(stretches.length, k - at), 32) * kNr;
      for (int64_t i = 0; i < elements; i += 2 * kRun)
        for (int32_t j = 0; j < kRun; ++j)
          *packed++ = static_cast<std::byte>(static_cast<int32_t>(panel[i + j]) |
                                             static_cast<int32_t>(panel[i + kRun + j]) << 4);
    }
    if (stretches.areWide())
      copyScales(col, cols, k0, k, reinterpret_cast<float*>(packed));
    else
      keepScales(col, cols, k0, k, packed);
  }

 private:
  bool multipliesPacked() const { return Unit::kMultipliesGroups && args.packedB != nullptr; }
  const uint8_t* packed(int32_t col, int32_t k0) const {
    return static_cast<const uint8_t*>(args.packedB) + PackedGroups<Unit>{stretches}.offset(col, k0, args.k);
  }

  static constexpr int32_t kRun = Unit::kRun;
  static_assert(32 * kNr % (2 * kRun) == 0);
  static constexpr int32_t kAhead = 4096;  // bytes

  void packPanel(int32_t col, int32_t cols, int32_t k0, int32_t k, Panel* dst) const {
    constexpr int32_t kPart = 64;
    int8_t codes[kPart * kNr];
    for (int32_t at = 0; at < k; at += stretches.length, dst += Unit::padded(stretches.length) * kNr)
      for (int32_t r = 0, end = smaller(stretches.length, k - at); r < end; r += kPart) {
        const int32_t length = smaller(kPart, end - r), first = k0 + at + r;
        if (args.transposeB) {
          for (int32_t j = 0; j < cols; ++j)
            expand(numberAt(b, (col + j) * args.b.ld + first), length, 0, codes + j * kPart);
          Pack::panelOfColumns(codes, kPart, cols, length, dst + r * kNr,
                               static_cast<const int8_t*>(nullptr));
        } else {
          for (int32_t i = 0; i < length; ++i)
            expand(numberAt(b, (first + i) * args.b.ld + col), cols, 0, codes + i * kNr);
          Pack::panelOfRows(codes, kNr, cols, length, dst + r * kNr, static_cast<const int8_t*>(nullptr));
        }
      }
  }

  // The place of the scale of a number of the sum in a column.
  int64_t scalePlace(int32_t col, int32_t at) const {
    const BlockScales& of = args.scaleB;
    const int32_t block = at / stretches.group;
    return args.transposeB ? (of.firstRow + col) * of.ld + block : block * of.ld + of.firstColumn + col;
  }

  // Those of the pads are 0; without scales they are 1.
  void copyScales(int32_t col, int32_t cols, int32_t k0, int32_t k, float* to) const {
    const BlockScales& of = args.scaleB;
    for (int32_t at = 0; at < k; at += stretches.length)
      for (int32_t number = 0; number < stretches.perNumber; ++number)
        for (int32_t j = 0; j < kNr; ++j, ++to) {
          const int64_t place = scalePlace(col + j, k0 + at);
          const float scale = j >= cols ? 0 : of.data == nullptr ? 1 : scaleAt(of, place);
          *to = number == 0 || j >= cols ? scale : zeroAt(of, place, scale);
        }
  }

  // Copies scales of 16 bits and their zeros as they are; pads get 0.
  void keepScales(int32_t col, int32_t cols, int32_t k0, int32_t k, std::byte* packed) const {
    const auto* const scales = static_cast<const uint16_t*>(args.scaleB.data);
    const auto* const zeros = static_cast<const uint8_t*>(args.scaleB.zero);
    auto* to = reinterpret_cast<char*>(packed);
    for (int32_t at = 0; at < k; at += stretches.length, to += stretches.scaleBytes() * kNr)
      for (int32_t j = 0; j < kNr; ++j) {
        const int64_t place = scalePlace(col + j, k0 + at);
        const uint16_t scale = j < cols ? scales[place] : uint16_t{0};
        __builtin_memcpy(to + 2 * j, &scale, sizeof scale);
        if (stretches.perNumber == 2) to[2 * kNr + j] = static_cast<char>(j < cols ? zeros[place] : 0);
      }
  }

  void expandPanel(int32_t col, int32_t k0, int32_t k, Panel* dst) const {
    const uint8_t* from = packed(col, k0);
    Panel* to = dst;
    for (int32_t at = 0; at < k; at += stretches.length, to += Unit::padded(stretches.length) * kNr) {
      const int64_t elements = roundUp(smaller(stretches.length, k - at), 32) * kNr;
      for (int64_t i = 0; i < elements; i += 2 * kRun, from += kRun) {
        fetchSoon(from + kAhead);
        split(from, to + i);
      }
    }
    const int32_t count = stretches.count(k);
    auto* const scales = reinterpret_cast<float*>(dst + Unit::kPanelElements);
    if (stretches.areWide())
      __builtin_memcpy(scales, from, static_cast<size_t>(PackedGroups<Unit>{stretches}.scalesBytes(count)));
    else
      stretches.widen(from, count, kNr, scales);
  }

  static void split(const uint8_t* __restrict from, Panel* __restrict to) {
    for (int32_t j = 0; j < kRun; ++j) to[j] = static_cast<Panel>(from[j] & 15);
    for (int32_t j = 0; j < kRun; ++j) to[kRun + j] = static_cast<Panel>(from[j] >> 4);
  }
};

template <class Codes, class Pack>
void groupsGmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  const GroupsSource<Codes, Pack> source(args);
  blockedProduct<UnitGroups<Codes>>(source, args.rows, args.n, args.k, args.scratch);
}

template <class Codes>
size_t groupsPackedBytesBy(int32_t n, int32_t k, PackedScales scales) {
  using Unit = UnitGroups<Codes>;
  if (n <= 0 || k <= 0) return 0;
  const PackedGroups<Unit> layout{Stretches(scales.group, scales.hasZeros, scales.type)};
  return static_cast<size_t>(roundUp(n, Unit::kNr) / Unit::kNr * layout.panelBytes(k));
}

template <class Codes, class Pack>
void packGroupsBy(const PackWeightArgs& args) {
  using Unit = UnitGroups<Codes>;
  GmmArgs product = {};
  product.b = args.b;
  product.transposeB = args.transposeB;
  product.scaleB = args.scaleB;
  const GroupsSource<Codes, Pack> source(product);
  const PackedGroups<Unit> layout{source.stretches};
  alignas(64) std::byte panel[Unit::kPanelBytes];
  for (int32_t col = 0; col < args.n; col += Unit::kNr)
    for (int32_t k0 = 0; k0 < args.k; k0 += Unit::kKPart)
      source.keepPanel(col, smaller(Unit::kNr, args.n - col), k0, smaller(Unit::kKPart, args.k - k0),
                       reinterpret_cast<PanelElement<Unit>*>(panel),
                       static_cast<std::byte*>(args.packed) + layout.offset(col, k0, args.k));
}

}  // namespace
}  // namespace sluice::ops
