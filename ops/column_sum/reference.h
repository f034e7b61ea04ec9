// What sums of columns mean, in double and plain loops.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[n], not rounded to the type of c; args.c is read where it is accumulated into, and not touched.
void columnSumReference(const ColumnSumArgs& args, double* result);

}  // namespace sluice::ops
