// Which way a product of rows of bf16 with a weight takes, by its Unit, its rows and how the weight lies. All
// ways give the same bits: the sum of an element runs in the order of blocked_product.h.
//
// Products of codes with codes, and of codes in groups, always take panels; so do gradients of weights. Sizes
// were measured on a Zen 5 and, for AVX2, on a Zen 3. `sluice calibrate` changes none.
//
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/unit.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

enum class Way : uint8_t {
  kPanels,      // panels of b, packed before or now: blocked_product.h
  kFewPanels,   // a few elements of the sum of a panel are packed at a time: few_rows.h
  kFewRuns,     // likewise, in runs of rows of b
  kRows,        // b [k, n] is read in place, some rows at a time: few_rows.h
  kStrips,      // b [k, n] is read in place, in strips of columns: strips_avx512.h
  kSquares,     // a transposed b is read in place, and squares are transposed in registers: columns.h
  kTransposed,  // the transposed product, by the rows of a transposed b in place: transposed_rows.h
  kFewCodes,    // codes of b are decoded in registers: few_codes_avx2.h
  kWidePanels,  // codes of b are decoded to panels that are wide already: code_panels_avx2.h
};

// Rows of c up to which a product is one of few rows, which waits for b.
constexpr int32_t kFewRows = 16;
// Rows up to which squares of b are faster than other ways, and codes that are decoded in registers.
constexpr int32_t kSquareRows = 8, kFewCodesRows = 8;

// Whether the product waits for a b that was not packed before.
inline bool hasFewRows(const GmmArgs& args) { return args.rows <= kFewRows && args.packedB == nullptr; }

// The numbers of b are multiplied as they lie in memory: few rows by FewUnit, and others by Unit.
template <class Unit, class FewUnit>
Way wayOfNumbers(const GmmArgs& args) {
  if (args.packedB != nullptr) return Way::kPanels;
  if (args.transposeB) {
    if constexpr (HasSquare<FewUnit>)
      if (args.rows <= kSquareRows) return Way::kSquares;
    // With more rows than a panel has columns packing b is as fast: measured up to 256 rows, where it is
    // faster.
    if constexpr (ReadsColumnsInPlace<Unit>)
      if (args.rows <= Unit::kNr && args.k > 0 && args.k % Unit::kKUnit == 0 && Unit::readsInPlace(args.rows))
        return Way::kTransposed;
    return hasFewRows(args) ? Way::kFewPanels : Way::kPanels;
  }
  if (!hasFewRows(args)) return Way::kPanels;
  if constexpr (ReadsRowsInPlace<FewUnit>) {
    if constexpr (HasStrips<FewUnit>)
      if (FewUnit::Strips::suit()) return Way::kStrips;
    return FewUnit::rowsOfBInPlace(args.rows, args.b.ld) > 0 ? Way::kRows : Way::kPanels;
  }
  return Way::kFewRuns;
}

// The numbers of b are rounded as they are packed.
inline Way wayOfRounded(const GmmArgs& args) { return hasFewRows(args) ? Way::kFewPanels : Way::kPanels; }

// b has codes of type B.
template <class FewUnit, class B>
Way wayOfCodes(const GmmArgs& args) {
  if constexpr (DecodesCodes<FewUnit, B>)
    return args.rows <= kFewCodesRows && args.k > 0 ? Way::kFewCodes : Way::kWidePanels;
  return wayOfRounded(args);
}

}  // namespace
}  // namespace sluice::ops
