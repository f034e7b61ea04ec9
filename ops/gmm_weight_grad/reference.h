// What gmm_weight_grad means, in double and plain loops.
#pragma once

#include "ops/abi/kernels.h"

namespace sluice::ops {

// result[m, n] without gaps, a * scale not rounded; with accumulate, args.c plus it. args.c and args.scratch
// are not written.
void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result);

}  // namespace sluice::ops
