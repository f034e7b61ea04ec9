// The kernels that go over rows for AVX-512.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

constinit const RowKernels rows = kRowKernels<Vector>;

}  // namespace sluice::ops::avx512
