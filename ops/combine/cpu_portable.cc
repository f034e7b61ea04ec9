// The weighted sum of rows for any machine.
#include "ops/combine/weighted_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void weightedSum(const WeightedSumArgs& args) { weightedSumLoop<Vector>(args); }

}  // namespace sluice::ops::portable
