// The gradient of SwiGLU for any machine.
#include "ops/activation_grad/swiglu_grad_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void swigluGrad(const SwigluGradArgs& args) { swigluGradLoop<Vector>(args); }

}  // namespace sluice::ops::portable
