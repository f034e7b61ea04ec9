// The kernels that go over rows for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

constinit const RowKernels rows = kRowKernels<Vector>;

}  // namespace sluice::ops::portable
