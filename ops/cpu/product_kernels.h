// gmm, the packing of its weights and gmm_weight_grad written once over (Unit, Pack): each instruction set
// instantiates them with its own. There are five products: of bf16, which may be rounded as they
// are packed; of rows that were rounded before, to codes of 8-bit floats; of bf16 and codes, whole numbers or
// 8-bit floats, which are decoded to bf16 as they are packed; of codes, whose sums are exact; and of codes in
// groups (groups.h).
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/few_rows.h"
#include "ops/cpu/flush_subnormals.h"
#include "ops/cpu/gmm_sources.h"
#include "ops/cpu/groups.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/stream.h"
#include "ops/cpu/transposed_rows.h"
#include "ops/cpu/way.h"
#include "ops/cpu/weight_grad_sources.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// The arguments of a product whose rounded factors have these scales.
template <class Args>
Args withScales(Args args, const FactorRounding& a, const FactorRounding& b) {
  args.alpha = args.alpha * a.scale.up * b.scale.up;
  return args;
}

template <class Unit>
size_t blockedScratchBytesBy(int32_t n, int32_t k) {
  return ScratchLayout<Unit>::bytes(n, k);
}

inline size_t larger(size_t x, size_t y) { return x > y ? x : y; }

template <class Unit, class FewUnit = Unit>
size_t ungatheredScratchBytesBy(int32_t n, int32_t k) {
  const size_t few = larger(FewRowsLayout<Unit>::bytes(n, k), FewRowsLayout<FewUnit>::bytes(n, k));
  const size_t blocked = larger(blockedScratchBytesBy<Unit>(n, k), blockedScratchBytesBy<FewUnit>(n, k));
  return larger(larger(blocked, few), transposedScratchBytes<Unit>(k));
}

// The numbers of b are changed as they are packed.
template <class Unit, class Source>
void packedProduct(const Source& source, const GmmArgs& args, Way way) {
  if (args.rows <= 0 || args.n <= 0) return;
  if (way == Way::kFewPanels)
    productByBlocks<Unit>(source, args.rows, args.n, args.k, static_cast<std::byte*>(args.scratch));
  else
    blockedProduct<Unit>(source, args.rows, args.n, args.k, args.scratch);
}

inline bool isRounded(Rounding a, Rounding b) { return a != Rounding::kNone || b != Rounding::kNone; }

// The product of few rows, which are read in place, of rows that were gathered at the end of the scratch.
template <class Unit, class FewUnit>
GmmArgs withGathered(const GmmArgs& args) {
  auto* const rows = reinterpret_cast<BFloat16*>(static_cast<std::byte*>(args.scratch) +
                                                 ungatheredScratchBytesBy<Unit, FewUnit>(args.n, args.k));
  for (int32_t i = 0; i < args.rows; ++i)
    __builtin_memcpy(rows + int64_t{i} * args.k,
                     static_cast<const BFloat16*>(args.a.data) + args.rowsA.of(i) * args.a.ld,
                     static_cast<size_t>(args.k) * sizeof(BFloat16));
  GmmArgs gathered = args;
  gathered.a = {rows, args.k};
  gathered.rowsA = {};
  return gathered;
}

// A product of one part after the other.
template <void (*kOfPart)(const GmmArgs&)>
void partByPart(const GmmArgs& args) {
  kOfPart(args);
  if (args.second != nullptr) kOfPart(*args.second);
}

template <class Unit, class Pack>
void roundedGmmBy(const GmmArgs& args) {
  const GmmArgs scaled = withScales(args, {args.roundA, args.amaxA}, {args.roundB, args.amaxB});
  packedProduct<Unit>(RoundedSource<Unit, Pack>{{scaled}}, scaled, wayOfRounded(args));
}

// A product that takes another way than panels; only the transposed product gathers rows itself.
template <class Unit, class Pack, class FewUnit, class FewPack>
void unpackedGmmBy(const GmmArgs& args) {
  if (args.rowsA && args.rows <= kFewRows)
    return unpackedGmmBy<Unit, Pack, FewUnit, FewPack>(withGathered<Unit, FewUnit>(args));
  const int32_t m = args.rows, n = args.n, k = args.k;
  const GmmSource<FewUnit, FewPack, BFloat16, BFloat16> source{args};
  auto* const scratch = static_cast<std::byte*>(args.scratch);
  auto* const tiles = static_cast<float*>(args.scratch);
  switch (wayOfNumbers<Unit, FewUnit>(args)) {
    case Way::kTransposed:
      if constexpr (ReadsColumnsInPlace<Unit>) TransposedRows<Unit, Pack>(args).run();
      return;
    case Way::kSquares:
      if constexpr (HasSquare<FewUnit>)
        productAlongColumns<typename FewUnit::Square>(source, m, n, k, FewUnit::kNr, tiles);
      return;
    case Way::kStrips:
      if constexpr (HasStrips<FewUnit>) productByStrips<typename FewUnit::Strips>(source, m, n, k, tiles);
      return;
    case Way::kRows:
      if constexpr (ReadsRowsInPlace<FewUnit>)
        productInPlace<FewUnit>(source, m, n, k, FewUnit::rowsOfBInPlace(m, args.b.ld), tiles);
      return;
    case Way::kFewRuns:
      if constexpr (ReadsPanelsOnly<FewUnit>) productByRows<FewUnit>(source, m, n, k, scratch);
      return;
    default:
      return productByBlocks<FewUnit>(source, m, n, k, scratch);
  }
}

// Panels of both parts at once: the rows of a are packed once, and the panels of the first part are followed
// by those of the second. FewUnit multiplies few rows by weights that were not packed before.
template <class Unit, class Pack, class FewUnit, class FewPack>
void gmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  if (isRounded(args.roundA, args.roundB)) return partByPart<roundedGmmBy<Unit, Pack>>(args);
  if (args.rows <= 0 || args.n <= 0) return;
  if (wayOfNumbers<Unit, FewUnit>(args) != Way::kPanels)
    return partByPart<unpackedGmmBy<Unit, Pack, FewUnit, FewPack>>(args);
  const PlainGmmSource<Unit, Pack> source{{args}};
  blockedProduct<Unit>(source, args.rows, source.columns(), args.k, args.scratch);
}

template <class Unit, class Pack>
void roundedCodesGmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  const GmmArgs scaled = withScales(args, {args.roundA, args.amaxA}, {args.roundB, args.amaxB});
  packedProduct<Unit>(RoundedSource<Unit, Pack, uint8_t>{{scaled}}, scaled, wayOfRounded(args));
}

template <class Unit, class Pack, class FewUnit, class FewPack, class B>
void decodedGmmBy(const GmmArgs& args) {
  const FlushSubnormals meaning;
  const Way way = wayOfCodes<FewUnit, B>(args);
  if constexpr (DecodesCodes<FewUnit, B>) {
    if (way == Way::kWidePanels)
      return blockedProduct<FewUnit>(WideDecodedSource<FewUnit, FewPack, B>{{{args}}}, args.rows, args.n,
                                     args.k, args.scratch);
    const GmmArgs given = args.rowsA ? withGathered<Unit, FewUnit>(args) : args;
    if (args.rows > 0)
      FewUnit::template FewCodes<B>::multiply(DecodedSource<FewUnit, FewPack, B>{{given}}, given.rows,
                                              given.n, given.k, static_cast<float*>(given.scratch));
  } else {
    packedProduct<Unit>(DecodedSource<Unit, Pack, B>{{args}}, args, way);
  }
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
         sizeof(PanelElement<Unit>);
}
inline size_t notPacked(int32_t, int32_t, PackedScales) { return 0; }

template <class Unit, class Source>
void packPanels(const Source& source, const PackWeightArgs& args) {
  const FlushSubnormals meaning;
  auto* const packed = static_cast<PanelElement<Unit>*>(args.packed);
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

// Each of two parts may end in some columns of a panel.
template <class Unit, class FewUnit = Unit>
size_t gmmScratchBytesBy(int32_t n, int32_t k) {
  return ungatheredScratchBytesBy<Unit, FewUnit>(n + Unit::kNr, k) +
         static_cast<size_t>(kFewRows) * k * sizeof(BFloat16);
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

template <class Unit, class Pack>
constexpr GmmKernels kCodesGmm = {kCodesProduct, partByPart<codesGmmBy<Unit, Pack>>,
                                  packWeightBy<Unit, Pack, int8_t>, blockedScratchBytesBy<Unit>,
                                  packedBytesBy<Unit>};
template <class Unit, class Pack>
constexpr GmmKernels kGroupsGmm = {kGroupsProduct, partByPart<groupsGmmBy<Unit, Pack>>,
                                   packGroupsBy<Unit, Pack>, blockedScratchBytesBy<UnitGroups<Unit>>,
                                   groupsPackedBytesBy<Unit>};

// By (Unit, Pack) of bf16, of codes, of codes in groups (groups.h), and of gradients and few rows of bf16.
template <class Unit, class Pack, class CodesUnit, class CodesPack, class GroupsUnit, class GroupsPack,
          class NarrowUnit = Unit, class NarrowPack = Pack>
struct ProductsBy {
  static constexpr GmmKernels kGmms[] = {
      {kBf16Product, gmmBy<Unit, Pack, NarrowUnit, NarrowPack>, packWeightBy<Unit, Pack, BFloat16>,
       gmmScratchBytesBy<Unit, NarrowUnit>, packedBytesBy<Unit>},
      {kRoundedCodesProduct, partByPart<roundedCodesGmmBy<Unit, Pack>>, packWeightBy<Unit, Pack, BFloat16>,
       gmmScratchBytesBy<Unit>, packedBytesBy<Unit>},
      {kDecodedProduct, partByPart<decodedGmmBy<Unit, Pack, NarrowUnit, NarrowPack, int8_t>>, nullptr,
       gmmScratchBytesBy<Unit, NarrowUnit>, notPacked},
      {kDecodedHalvesProduct, partByPart<decodedGmmBy<Unit, Pack, NarrowUnit, NarrowPack, Nibbles>>, nullptr,
       gmmScratchBytesBy<Unit, NarrowUnit>, notPacked},
      {kDecodedFloatsProduct, partByPart<decodedGmmBy<Unit, Pack, NarrowUnit, NarrowPack, uint8_t>>, nullptr,
       gmmScratchBytesBy<Unit, NarrowUnit>, notPacked},
      kCodesGmm<CodesUnit, CodesPack>,
      kGroupsGmm<GroupsUnit, GroupsPack>};
  static constexpr ProductKernels kAll = {kGmms,
                                          kWeightGradTypes,
                                          weightGradBy<NarrowUnit, NarrowPack>,
                                          weightGradScratchBytesBy<NarrowUnit>,
                                          {Unit::kNr, Unit::kMc, Unit::kKc}};
};

}  // namespace
}  // namespace sluice::ops
