// The sum of two matrices for AVX2 and FMA.
#include "ops/add/add_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx2.h"

namespace sluice::ops::avx2 {

void add(const AddArgs& args) { addLoop<Vector>(args); }

}  // namespace sluice::ops::avx2
