// Rows to codes of 8-bit floats for AVX-512.
#include "ops/cpu/kernel_functions.h"
#include "ops/encode/encode_loop.h"

namespace sluice::ops::avx512 {

void encode(const EncodeArgs& args) { encodeLoop(args); }

}  // namespace sluice::ops::avx512
