// Dot products of rows with one vector for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"
#include "ops/row_dot/row_dot_loop.h"

namespace sluice::ops::portable {

void rowDot(const RowDotArgs& args) { rowDotLoop<Vector>(args); }

}  // namespace sluice::ops::portable
