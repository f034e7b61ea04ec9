// SwiGLU for any machine.
#include "ops/activation/swiglu_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void swiglu(const SwigluArgs& args) { swigluLoop<Vector>(args); }

}  // namespace sluice::ops::portable
