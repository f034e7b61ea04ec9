// What the sum of two matrices means, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[rows, n] without gaps, not rounded to bf16; args.c is not touched.
void addReference(const AddArgs& args, double* result);

}  // namespace sluice::ops
