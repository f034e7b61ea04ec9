// Tiling: the descriptor of one task family, read by its kernel. What each field means for an op stands in
// ops/<op>/tiling.h; unused fields are 0.
//
// Value type of 32 bytes; lies in the program file as it is.
#pragma once

#include <cstdint>

namespace sluice {

struct Tiling {
  int32_t m = 0;      // rows of the product, where they are known at compile time (weight gradient)
  int32_t n = 0;      // columns of the output
  int32_t k = 0;      // length of the sum
  int32_t tileM = 0;  // rows of m in one task
  int32_t tileN = 0;  // columns of n in one task
  uint32_t flags = 0;
  float alpha = 0;  // factor of the product; 0 where the op has none or it is 1
  int32_t reserved = 0;
  friend bool operator==(const Tiling&, const Tiling&) = default;
};
static_assert(sizeof(Tiling) == 32);

// Number of pieces of length `tile` that cover `length`; the last may be shorter.
constexpr int32_t ceilDiv(int32_t length, int32_t tile) { return (length + tile - 1) / tile; }

}  // namespace sluice
