// The gradient of SwiGLU for AVX-512.
#include "ops/activation_grad/swiglu_grad_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void swigluGrad(const SwigluGradArgs& args) { swigluGradLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
