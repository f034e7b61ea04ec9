// The activations for AVX2 and FMA.
#include "ops/activation/activation_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void activation(const ActivationArgs& args) { activationLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
