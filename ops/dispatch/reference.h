// What the gather of rows means, byte by byte.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// result[rows, bytes] without gaps; args.dst is not touched.
void gatherRowsReference(const GatherRowsArgs& args, std::byte* result);

}  // namespace sluice::ops
