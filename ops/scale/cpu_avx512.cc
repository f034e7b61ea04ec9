// A matrix times a number for AVX-512.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"
#include "ops/scale/scale_loop.h"

namespace sluice::ops::avx512 {

void scale(const ScaleArgs& args) { scaleLoop<Vector>(args); }
void scaleF32(const ScaleF32Args& args) { scaleLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
