// What a matrix times a number, or one per row, means, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[rows, n] without gaps, not rounded to bf16; args.c is not touched.
template <class T>
void scaleReference(const ScaleOf<T>& args, double* result);

}  // namespace sluice::ops
