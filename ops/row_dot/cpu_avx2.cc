// Dot products of rows with one vector for AVX2 and FMA.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"
#include "ops/row_dot/row_dot_loop.h"

namespace sluice::ops::avx2 {

void rowDot(const RowDotArgs& args) { rowDotLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
