// What gmm means, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[rows, n] without gaps, not rounded to bf16; args.c and args.scratch are not touched.
void gmmReference(const GmmArgs& args, double* result);

}  // namespace sluice::ops
