// Rows to codes for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/quantize/quantize_loop.h"

namespace sluice::ops::portable {

void quantize(const QuantizeArgs& args) { quantizeLoop(args); }

}  // namespace sluice::ops::portable
