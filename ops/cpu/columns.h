// Products of few rows with a transposed weight, b [n, k], without packing: squares of columns and elements
// of the sum are transposed in registers and multiplied there.
//
//   for kColumns columns of c
//     for kLength elements of the sum: transpose the square; sums += rows of a * square
//
// The sum of an element runs in the order of the Unit, so that the bits are the same. The members of a Square
// are kColumns and kLength, kAhead (elements of the sum by which b is prefetched ahead of its use) and
//   load(b, ldb): kLength elements of kColumns rows of b, transposed
//   add<kOneRow>(a, lda, m, tile, stride): tile[i][0, kColumns) += the elements a[i][0, kLength) times the
//   square, for m rows (1 where kOneRow)
//   addSome(a, k, tile): of one row, the first k elements only (adding a zero would turn a -0 into 0)
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// Multiplies whole squares of kColumns columns from col on, from the first element of the sum. Returns how
// much of the sum is done.
template <class Square, bool kOneRow, class Source>
SLUICE_NOT_INLINED int32_t sumsOfSquares(const Source& source, int32_t m, int32_t col, int32_t k, float* tile,
                                         int32_t stride) {
  constexpr int32_t kColumns = Square::kColumns, kLength = Square::kLength;
  const int64_t ldb = source.strideB(), lda = source.strideA();
  int32_t k0 = 0;
  for (; k - k0 >= kLength; k0 += kLength) {
    const int32_t later = k0 + Square::kAhead;  // memory beyond the end of a column belongs to another one
    const BFloat16* const ahead =
        later < k ? source.sourceB(col, later) : source.sourceB(col + kColumns, later - k);
    for (int32_t j = 0; j < kColumns; ++j) fetchSoon(ahead + j * ldb);
    const Square square(source.sourceB(col, k0), ldb);
    square.template add<kOneRow>(source.sourceA(0, k0), lda, m, tile, stride);
  }
  return k0;
}

// The rest of `cols` columns after element `k0` of the sum.
template <class Square, class Source>
void sumsOfEdge(const Source& source, int32_t m, int32_t col, int32_t cols, int32_t k0, int32_t k,
                float* tile, int32_t stride) {
  constexpr int32_t kColumns = Square::kColumns, kLength = Square::kLength;
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
    __builtin_memset(tile, 0, sizeof(float) * m * stride);
    for (int32_t j = 0; j < cols; j += Square::kColumns) {
      const int32_t width = smaller(Square::kColumns, cols - j);
      int32_t k0 = 0;
      if (width == Square::kColumns)
        k0 = m == 1 ? sumsOfSquares<Square, true>(source, m, col + j, k, tile + j, stride)
                    : sumsOfSquares<Square, false>(source, m, col + j, k, tile + j, stride);
      sumsOfEdge<Square>(source, m, col + j, width, k0, k, tile + j, stride);
    }
    source.store(0, m, col, cols, tile);
  }
}

}  // namespace
}  // namespace sluice::ops
