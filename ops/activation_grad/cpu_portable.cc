// The gradient of the activations for any machine.
#include "ops/activation_grad/activation_grad_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"

namespace sluice::ops::portable {

void activationGrad(const ActivationGradArgs& args) { activationGradLoop<Vector>(args); }

}  // namespace sluice::ops::portable
