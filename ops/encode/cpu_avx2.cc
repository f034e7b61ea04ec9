// Rows to codes of 8-bit floats for AVX2.
#include "ops/cpu/kernel_functions.h"
#include "ops/encode/encode_loop.h"

namespace sluice::ops::avx2 {

void encode(const EncodeArgs& args) { encodeLoop(args); }

}  // namespace sluice::ops::avx2
