// The kernels that go over rows for AVX2 and FMA.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

constinit const RowKernels rows = kRowKernels<Vector>;

}  // namespace sluice::ops::avx2
