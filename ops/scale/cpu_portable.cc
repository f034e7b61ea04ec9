// A matrix times a number for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_portable.h"
#include "ops/scale/scale_loop.h"

namespace sluice::ops::portable {

void scale(const ScaleArgs& args) { scaleLoop<Vector>(args); }
void scaleF32(const ScaleF32Args& args) { scaleLoop<Vector>(args); }

}  // namespace sluice::ops::portable
