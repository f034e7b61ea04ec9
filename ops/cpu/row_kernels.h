// The kernels that go over rows, for any Vector (vector_*.h). A file of each instruction set includes this
// and makes a table of them. Internal linkage: see blocked_product.h.
#pragma once

#include "ops/activation/activation_loop.h"
#include "ops/activation_grad/activation_grad_loop.h"
#include "ops/add/add_loop.h"
#include "ops/amax/amax_loop.h"
#include "ops/column_sum/column_sum_loop.h"
#include "ops/combine/weighted_sum_loop.h"
#include "ops/dispatch/gather_rows_loop.h"
#include "ops/encode/encode_loop.h"
#include "ops/quantize/quantize_loop.h"
#include "ops/row_dot/row_dot_loop.h"
#include "ops/scale/scale_loop.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

template <class V>
constexpr RowKernels kRowKernels = {.activation = activationLoop<V>,
                                    .activationGrad = activationGradLoop<V>,
                                    .gatherRows = gatherRowsLoop,
                                    .weightedSum = weightedSumLoop<V, BFloat16>,
                                    .weightedSumF32 = weightedSumLoop<V, float>,
                                    .sumScalars = sumScalarsLoop,
                                    .add = addLoop<V>,
                                    .scale = scaleLoop<V, BFloat16>,
                                    .scaleF32 = scaleLoop<V, float>,
                                    .columnSum = columnSumLoop<V>,
                                    .rowDot = rowDotLoop<V>,
                                    .quantize = quantizeLoop,
                                    .amax = amaxLoop,
                                    .encode = encodeLoop};

}  // namespace
}  // namespace sluice::ops
