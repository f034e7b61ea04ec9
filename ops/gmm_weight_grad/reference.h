// What gmm_weight_grad means, in double and plain loops.
#pragma once

#include "ops/abi/kernels.h"

namespace sluice::ops {

// result[m, n] without gaps, nothing rounded; with accumulate, args.c (args.narrow where given) plus it.
// args.c, args.narrow and args.scratch are not written.
void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result);

}  // namespace sluice::ops
