// The weighted sum of rows, and sums of their scalars, for any machine.
#include "ops/combine/weighted_sum_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void weightedSum(const WeightedSumArgs& args) { weightedSumLoop<Vector>(args); }
void weightedSumF32(const WeightedSumF32Args& args) { weightedSumLoop<Vector>(args); }

void sumScalars(const SumScalarsArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const int32_t position = args.position[i];
    float sum = position < 0 ? 0 : args.src[position];
    for (int32_t part = 1; position >= 0 && part < args.parts; ++part)
      sum += args.src[position + part * args.partElements];
    args.dst[i] = sum;
  }
}

}  // namespace sluice::ops::portable
