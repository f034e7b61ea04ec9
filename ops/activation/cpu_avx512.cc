// SwiGLU for AVX-512.
#include "ops/activation/swiglu_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void swiglu(const SwigluArgs& args) { swigluLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
