// What quantisation of rows means, one number at a time.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// Writes args.codes and args.scale.
void quantizeReference(const QuantizeArgs& args);

}  // namespace sluice::ops
