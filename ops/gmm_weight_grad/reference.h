// What gmm_weight_grad means, in double and plain loops.
#pragma once

#include "ops/abi/kernels.h"

namespace sluice::ops {

// result[m, n] without gaps, a * scale not rounded; args.c and args.scratch are not touched.
void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result);

}  // namespace sluice::ops
