// What SwiGLU means, in double and plain loops.
#pragma once

#include "ops/abi/kernels.h"

namespace sluice::ops {

// result[rows, inter] without gaps, not rounded to bf16; args.act is not touched.
void swigluReference(const SwigluArgs& args, double* result);

}  // namespace sluice::ops
