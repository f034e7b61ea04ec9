// Codes for vpdpbusd, which multiplies unsigned bytes by signed ones: if Unit::kShiftsCodes, the packed b has
// its codes plus 128, and 128 times the sum of a row of a, which stands after that packed row, is subtracted
// again. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

namespace sluice::ops {
namespace {

// A code of b xor this is the byte that is packed.
template <class Unit>
constexpr int8_t kFlip = Unit::kShiftsCodes ? -128 : 0;

// Puts the sum of the k codes of a row after the packed row, as an int32.
template <class Unit>
void keepSum(const int8_t* codes, int32_t k, int8_t* packedRow) {
  int32_t sum = 0;
  for (int32_t j = 0; j < k; ++j) sum += codes[j];
  __builtin_memcpy(packedRow + Unit::kKc, &sum, sizeof sum);
}

// The sums of products with a packed row of so many words exceed the exact ones by this.
template <class Unit>
int32_t excessOfRow(const int8_t* packedRow, int32_t words) {
  int32_t sum = 0;
  if (words > 0) __builtin_memcpy(&sum, packedRow + Unit::kKc, sizeof sum);
  return 128 * sum;
}

}  // namespace
}  // namespace sluice::ops
