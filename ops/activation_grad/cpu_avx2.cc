// The gradient of the activations for AVX2 and FMA.
#include "ops/activation_grad/activation_grad_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void activationGrad(const ActivationGradArgs& args) { activationGradLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
