// What the gradient of the activations means, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// gateUpGrad[rows, inputs * inter] without gaps, not rounded to bf16; rowWeightGrad[rows]. The outputs in
// args are not touched.
void activationGradReference(const ActivationGradArgs& args, double* gateUpGrad, double* rowWeightGrad);

}  // namespace sluice::ops
