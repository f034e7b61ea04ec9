// The weighted sum of rows for AVX-512.
#include "ops/combine/weighted_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void weightedSum(const WeightedSumArgs& args) { weightedSumLoop<Vector>(args); }
void weightedSumF32(const WeightedSumF32Args& args) { weightedSumLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
