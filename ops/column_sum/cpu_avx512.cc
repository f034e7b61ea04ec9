// Sums of columns for AVX-512.
#include "ops/column_sum/column_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void columnSum(const ColumnSumArgs& args) { columnSumLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
