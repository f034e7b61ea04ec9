#include "ops/dispatch/reference.h"

namespace sluice::ops {

void gatherRowsReference(const GatherRowsArgs& args, std::byte* result) {
  for (int64_t i = 0; i < args.rows; ++i) {
    const int64_t index = args.index == nullptr ? i : args.index[i];
    for (int64_t j = 0; j < args.bytes; ++j)
      result[i * args.bytes + j] =
          index < 0 ? std::byte{0} : args.src[(index / args.divisor) * args.srcStride + j];
  }
}

}  // namespace sluice::ops
