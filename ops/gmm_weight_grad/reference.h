// What gmm_weight_grad means, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[m, n] without gaps, not rounded. With accumulate the old content of args.c is added. args.c and
// args.scratch are not written.
void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result);

}  // namespace sluice::ops
