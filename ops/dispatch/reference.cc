#include "ops/dispatch/reference.h"

namespace sluice::ops {

void gatherRowsReference(const GatherRowsArgs& args, std::byte* result) {
  for (int64_t i = 0; i < args.rows; ++i)
    for (int64_t j = 0; j < args.bytes; ++j)
      result[i * args.bytes + j] = args.src[(args.index[i] / args.divisor) * args.srcStride + j];
}

}  // namespace sluice::ops
