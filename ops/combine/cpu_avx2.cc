// The weighted sum of rows for AVX2 and FMA.
#include "ops/combine/weighted_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void weightedSum(const WeightedSumArgs& args) { weightedSumLoop<Vector>(args); }
void weightedSumF32(const WeightedSumF32Args& args) { weightedSumLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
