// Codes of 4 bits, two per byte: element 2j is the lower half of byte j. Internal linkage: see
// blocked_product.h.
#pragma once

#include <cstdint>

namespace sluice::ops {
namespace {

// A byte of two codes; pointers to it show that elements are halves.
struct Nibbles {
  uint8_t bits;
};

template <class T>
constexpr int64_t kPerElement = 1;
template <>
constexpr int64_t kPerElement<Nibbles> = 2;

// Where number `index` lies. For codes of 4 bits `index` is even.
template <class T>
const T* numberAt(const T* from, int64_t index) {
  return from + index / kPerElement<T>;
}

constexpr int32_t kHalf = 8;  // what codes without zeros count from

// to[j] = code j - minus.
inline void expand(const Nibbles* __restrict from, int32_t count, int32_t minus, int8_t* __restrict to) {
  for (int32_t j = 0; j < count / 2; ++j) {
    to[2 * j] = static_cast<int8_t>((from[j].bits & 15) - minus);
    to[2 * j + 1] = static_cast<int8_t>((from[j].bits >> 4) - minus);
  }
  if (count % 2 != 0) to[count - 1] = static_cast<int8_t>((from[count / 2].bits & 15) - minus);
}

}  // namespace
}  // namespace sluice::ops
