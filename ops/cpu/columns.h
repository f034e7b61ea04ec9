// Products of few rows with a transposed weight, b [n, k], without packing: squares of columns and elements
// of the sum are transposed in registers, where they are multiplied at once.
//
//   for kColumns columns of c
//     for kLength elements of the sum: transpose the square; for rows of a: sums += row * square
//
// The sum of an element runs in the order of the Unit, so that the bits are the same. A Square states
// kColumns and kLength, kAhead (elements of the sum by which b is asked for ahead of its use), kMostRows (of
// a, up to which this is quicker than packing) and
//   load(b, ldb): kLength elements of kColumns rows of b, transposed
//   add(a, tile): tile[0, kColumns) += the elements a[0, kLength) of a row times the square
//   addSome(a, k, tile): the same for the first k elements only (adding a zero would turn a -0 into 0)
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

template <class Square, class Source>
void sumsOfColumns(const Source& source, int32_t m, int32_t col, int32_t cols, int32_t k, float* tile,
                   int32_t stride) {
  constexpr int32_t kColumns = Square::kColumns, kLength = Square::kLength;
  for (int32_t i = 0; i < m; ++i) __builtin_memset(tile + i * stride, 0, sizeof(float) * kColumns);
  const int64_t ldb = source.strideB();
  int32_t k0 = 0;
  for (; cols == kColumns && k - k0 >= kLength; k0 += kLength) {
    const int32_t later = k0 + Square::kAhead;  // what lies behind the end of a column is another's
    const BFloat16* const ahead =
        later < k ? source.sourceB(col, later) : source.sourceB(col + kColumns, later - k);
    for (int32_t j = 0; j < kColumns; ++j) fetchSoon(ahead + j * ldb);
    const Square square(source.sourceB(col, k0), ldb);
    for (int32_t i = 0; i < m; ++i) square.add(source.sourceA(i, k0), tile + i * stride);
  }
  for (; k0 < k; k0 += kLength) {
    const int32_t length = smaller(kLength, k - k0);
    const auto bytes = static_cast<size_t>(length) * sizeof(BFloat16);
    BFloat16 edge[kColumns][kLength] = {};
    for (int32_t j = 0; j < cols; ++j) __builtin_memcpy(edge[j], source.sourceB(col + j, k0), bytes);
    const Square square(edge[0], kLength);
    for (int32_t i = 0; i < m; ++i) {
      BFloat16 row[kLength] = {};
      __builtin_memcpy(row, source.sourceA(i, k0), bytes);
      square.addSome(row, length, tile + i * stride);
    }
  }
}

// c[m, n] = a[m, k] * b[k, n], by tiles of `stride` columns, a multiple of kColumns; `tile` holds one.
template <class Square, class Source>
void productAlongColumns(const Source& source, int32_t m, int32_t n, int32_t k, int32_t stride, float* tile) {
  for (int32_t col = 0; col < n; col += stride) {
    const int32_t cols = smaller(stride, n - col);
    for (int32_t j = 0; j < cols; j += Square::kColumns)
      sumsOfColumns<Square>(source, m, col + j, smaller(Square::kColumns, cols - j), k, tile + j, stride);
    source.store(0, m, col, cols, tile);
  }
}

}  // namespace
}  // namespace sluice::ops
