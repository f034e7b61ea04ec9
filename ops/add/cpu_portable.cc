// The sum of two matrices for any machine.
#include "ops/add/add_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void add(const AddArgs& args) { addLoop<Vector>(args); }

}  // namespace sluice::ops::portable
