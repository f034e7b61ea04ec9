// What the activations mean, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[rows, inter] without gaps, not rounded to bf16; args.act is not touched.
void activationReference(const ActivationArgs& args, double* result);

}  // namespace sluice::ops
