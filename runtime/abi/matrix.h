// The matrices of products: address, leading dimension and element type.
#pragma once

#include <cassert>
#include <cstdint>
#include <type_traits>

#include "runtime/base/dtype.h"

namespace sluice::ops {

// A matrix of numbers of `type` that begins at `data` and whose rows are `ld` numbers apart; that is even
// where an element has two codes, and so are the columns of parts. Value type; owns nothing. Constructed from
// a typed pointer, it takes its type from the pointer.
template <class Void>
struct MatrixOf {
  template <class T>
  using Like = std::conditional_t<std::is_const_v<Void>, const T, T>;

  Void* data;
  int64_t ld;
  DType type;

  MatrixOf() = default;
  MatrixOf(Void* elements, int64_t leading, DType elementType)
      : data(elements), ld(leading), type(elementType) {}
  template <class T>
  MatrixOf(T* elements, int64_t leading) : data(elements), ld(leading), type(findDType(elements)) {}

  // The part that begins at this element.
  MatrixOf from(int64_t row, int64_t column) const {
    auto* const bytes = static_cast<Like<char>*>(data);
    return {static_cast<Void*>(bytes + (row * ld + column) * dtypeBytes(type) / codesPerElement(type)), ld,
            type};
  }
  double at(int64_t row, int64_t column) const {
    const int64_t number = row * ld + column;
    if (codesPerElement(type) == 1) return elementAt(type, data, number);
    return static_cast<const uint8_t*>(data)[number / 2] >> 4 * (number % 2) & 15;
  }
};

using Operand = MatrixOf<const void>;
using Result = MatrixOf<void>;

// The element types of a product c of a and b.
struct ProductTypes {
  DType a, b, c;
  friend constexpr bool operator==(const ProductTypes&, const ProductTypes&) = default;
};

}  // namespace sluice::ops
