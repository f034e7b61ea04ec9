// Rows to codes of 8-bit floats for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/encode/encode_loop.h"

namespace sluice::ops::portable {

void encode(const EncodeArgs& args) { encodeLoop(args); }

}  // namespace sluice::ops::portable
