// The activations for AVX-512.
#include "ops/activation/activation_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void activation(const ActivationArgs& args) { activationLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
