// What each op means, in double precision and plain loops. Kernels are tested against these functions.
//
// Results lie in memory without gaps and are not rounded to the type of the op's result. The functions do not
// write what `args` points to, except quantizeReference().
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/kernels.h"
#include "runtime/base/enums.h"

namespace sluice::ops {

// Products (products.cc).

// result[rows, n].
void gmmReference(const GmmArgs& args, double* result);

// result[m, n]. With accumulate the old content of args.c is added.
void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result);

// A factor of a product: number i of the sum of its j-th row or column is data[i * sumStride + j * stride].
struct FactorView {
  double* data;
  int64_t sum;  // length
  int64_t sumStride;
  int64_t count;  // of rows or columns
  int64_t stride;
};

// Rounds the numbers, blocks beginning at the first one. Subnormal bf16 numbers count as 0. `amax`: of scaled
// ones.
void roundReference(const FactorView& factor, Rounding rounding, double amax = 0);

// What numbers of the 8-bit float are multiplied by if they are scaled; 1 for others.
double roundingUnit(Rounding rounding, double amax);

// Multiplies number i of each sum by scale[i], and rounds it to a bf16 number times `unit`.
void scaleReference(const FactorView& factor, const float* scale, double unit);

// Ops that go over rows (rows.cc).

// result[rows, inter].
void activationReference(const ActivationArgs& args, double* result);

// gateUpGrad[rows, inputs * inter], rowWeightGrad[rows].
void activationGradReference(const ActivationGradArgs& args, double* gateUpGrad, double* rowWeightGrad);

// result[rows, bytes], copied byte by byte.
void gatherRowsReference(const GatherRowsArgs& args, std::byte* result);

// result[tokens, n]. T: BFloat16 or float.
template <class T>
void weightedSumReference(const WeightedSumOf<T>& args, double* result);

// result[rows, n].
void addReference(const AddArgs& args, double* result);

// result[rows, n]. T: BFloat16 or float.
template <class T>
void scaleReference(const ScaleOf<T>& args, double* result);

// result[n]. With accumulate the old content of args.c is added.
void columnSumReference(const ColumnSumArgs& args, double* result);

// result[rows].
void rowDotReference(const RowDotArgs& args, double* result);

// Writes args.codes and args.scale.
void quantizeReference(const QuantizeArgs& args);

}  // namespace sluice::ops
