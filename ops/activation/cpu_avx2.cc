// SwiGLU for AVX2 and FMA.
#include "ops/activation/swiglu_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void swiglu(const SwigluArgs& args) { swigluLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
