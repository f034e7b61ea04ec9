// Sums of columns for AVX2 and FMA.
#include "ops/column_sum/column_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void columnSum(const ColumnSumArgs& args) { columnSumLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
