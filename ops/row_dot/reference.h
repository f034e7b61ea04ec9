// What dot products of rows with one vector mean, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[rows], not rounded to fp32; args.c is not touched.
void rowDotReference(const RowDotArgs& args, double* result);

}  // namespace sluice::ops
