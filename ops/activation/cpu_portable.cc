// The activations for any machine.
#include "ops/activation/activation_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void activation(const ActivationArgs& args) { activationLoop<Vector>(args); }

}  // namespace sluice::ops::portable
