// The gradient of SwiGLU for AVX2 and FMA.
#include "ops/activation_grad/swiglu_grad_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void swigluGrad(const SwigluGradArgs& args) { swigluGradLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
