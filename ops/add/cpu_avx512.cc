// The sum of two matrices for AVX-512.
#include "ops/add/add_loop.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/vector_avx512.h"

namespace sluice::ops::avx512 {

void add(const AddArgs& args) { addLoop<Vector>(args); }

}  // namespace sluice::ops::avx512
