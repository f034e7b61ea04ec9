// Sums of columns for any machine.
#include "ops/column_sum/column_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void columnSum(const ColumnSumArgs& args) { columnSumLoop<Vector>(args); }

}  // namespace sluice::ops::portable
