// The columns of a panel of bf16 that lies in memory as rows, as pairs of two rows, which are also stored as
// the packed panel (pack_bf16.h). Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/square.h"
#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

class InterleavedRows {
 public:
  // `rows` rows of 64 columns, of which `stride` is the distance in elements; the packed ones go to `panel`.
  InterleavedRows(const BFloat16* from, int64_t stride, int32_t rows, uint16_t* panel)
      : from_(from), stride_(stride), left_(rows), panel_(panel) {}

  // Pairs of the next two rows, or of the last one and zeros.
  SLUICE_UNROLLED void next(__m512i (&column)[4]) {
    alignas(64) static constexpr BFloat16 kZeros[64] = {};
    const BFloat16* const oddRow = left_ > 1 ? from_ + stride_ : kZeros;
    unroll<2>([&](auto h) SLUICE_UNROLLED {
      const __m512i even = _mm512_loadu_si512(from_ + h.value * 32);
      const __m512i odd = _mm512_loadu_si512(oddRow + h.value * 32);
      fetchSoon(from_ + kRowsAhead * stride_ + h.value * 32);
      fetchSoon(from_ + (kRowsAhead + 1) * stride_ + h.value * 32);
      column[2 * h.value] = firstPairs(even, odd);
      column[2 * h.value + 1] = secondPairs(even, odd);
    });
    unroll<4>([&](auto v) SLUICE_UNROLLED { _mm512_storeu_si512(panel_ + v.value * 32, column[v.value]); });
    from_ += 2 * stride_;
    left_ -= 2;
    panel_ += 128;
  }

 private:
  // The number of rows by which lines are prefetched that were prefetched long before: some were evicted
  // meanwhile, most where rows begin a multiple of 4 KiB apart and share a few sets of the cache.
  static constexpr int32_t kRowsAhead = 32;

  const BFloat16* from_;
  int64_t stride_;
  int32_t left_;
  uint16_t* panel_;
};

}  // namespace
}  // namespace sluice::ops
