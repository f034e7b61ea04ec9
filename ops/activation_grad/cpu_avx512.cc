// The gradient of the activations for AVX-512.
#include "ops/activation_grad/activation_grad_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void activationGrad(const ActivationGradArgs& args) { activationGradLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
