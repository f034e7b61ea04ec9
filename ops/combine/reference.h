// What the weighted sum of rows means, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[tokens, n] without gaps, not rounded to bf16; args.y is not touched.
template <class T>
void weightedSumReference(const WeightedSumOf<T>& args, double* result);

}  // namespace sluice::ops
