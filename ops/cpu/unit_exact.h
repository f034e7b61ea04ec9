// The unit of codes for processors that cannot multiply bytes: it uses the unit of fp32, which adds the
// products of a block of the sum exactly, and adds the sums of blocks in int32. Internal linkage: see
// blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

template <class Base>
struct UnitExact : Base {
  using Sum = int32_t;
  using Element = typename Base::Element;
  static_assert(int64_t{Base::kKc} * 128 * 128 <= 1 << 24);  // whole numbers up to this are fp32

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       Sum* tile, Ahead& ahead) {
    float part[Base::kMr * Base::kNr] = {};
    Base::multiply(a, b, k, rows, cols, true, part, ahead);
    for (int32_t i = 0; i < rows * Base::kNr; ++i)
      tile[i] = static_cast<Sum>(part[i]) + (first ? 0 : tile[i]);
  }
};

}  // namespace
}  // namespace sluice::ops
