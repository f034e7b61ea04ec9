// Rows to codes for AVX-512.
#include "ops/cpu/kernel_functions.h"
#include "ops/quantize/quantize_loop.h"

namespace sluice::ops::avx512 {

void quantize(const QuantizeArgs& args) { quantizeLoop(args); }

}  // namespace sluice::ops::avx512
