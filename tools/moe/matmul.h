// Double-precision matrix products for the reference: blocked, vectorised, multi-threaded.
//
// Nothing here shares code with the kernels that it checks. Results do not depend on the number of threads,
// nor on the vector width of the instruction set except through fused multiply-adds. Any size may be 0.
#pragma once

#include <cstdint>
#include <functional>

namespace sluice::tools {

// A matrix in the caller's memory; does not own it. Element (i, j) is at i * rowStride + j * colStride, so
// exchanging the strides transposes the matrix.
struct MatrixView {
  const double* data = nullptr;
  int64_t rowStride = 0;
  int64_t colStride = 1;

  MatrixView transposed() const { return {data, colStride, rowStride}; }
};

// c[m, n] = a[m, k] * b[k, n], or c += a * b; c is row-major with ldc elements per row. As in the kernels,
// numbers below 2^-126 count as zero, as operands and as results.
struct MatmulArgs {
  MatrixView a;
  MatrixView b;
  double* c = nullptr;
  int64_t ldc = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool accumulate = false;
};
void matmul(const MatmulArgs& args, int threads);

// Runs body(begin, end) over 0 .. count in blocks of `grain`, on `threads` threads; returns when all have
// ended.
void parallelFor(int threads, int64_t count, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& body);

}  // namespace sluice::tools
