// Packing of codes by a packer of bf16: codes become 16-bit elements a few of the sum at a time, and then lie
// as b would. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/nibbles.h"

namespace sluice::ops {
namespace {

// The panel of b [k, cols] whose codes begin at `codes`; if `transposed`, they are [cols, k]. For each part
// of them convert(codes, first, rows, columns, to, ldTo) writes the elements: `first` is the part's first
// element of the sum, and rows and columns are counted as in memory.
template <class Unit, class Pack, class B, class Convert>
void packParts(bool transposed, const B* codes, int64_t ld, int32_t cols, int32_t k, PanelElement<Unit>* dst,
               const B* ahead, const Convert& convert) {
  constexpr int32_t kPart = 32, kLine = kLineBytes / sizeof(B) * kPerElement<B>;
  static_assert(kPart % Unit::kKUnit == 0);
  BFloat16 elements[kPart * Unit::kNr];
  for (int32_t r = 0; r < k; r += kPart, dst += kPart * Unit::kNr) {
    const int32_t length = smaller(kPart, k - r);
    const int64_t offset = transposed ? r : r * ld;
    const int32_t rows = transposed ? cols : length, columns = transposed ? length : cols;
    if (ahead != nullptr)
      for (int32_t i = 0; i < rows; ++i)
        for (int32_t j = 0; j < columns; j += kLine) fetchSoon(numberAt(ahead, offset + i * ld + j));
    if (transposed) {
      convert(numberAt(codes, offset), r, cols, length, elements, kPart);
      Pack::panelOfColumns(elements, kPart, cols, length, dst, static_cast<const BFloat16*>(nullptr));
    } else {
      convert(numberAt(codes, offset), r, length, cols, elements, Unit::kNr);
      Pack::panelOfRows(elements, Unit::kNr, cols, length, dst, static_cast<const BFloat16*>(nullptr));
    }
  }
}

}  // namespace
}  // namespace sluice::ops
