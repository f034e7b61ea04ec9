// The gather of rows: one copy per row, for which the C library uses the best instructions of the machine.
#include <cstring>

#include "ops/cpu/kernel_functions.h"

namespace sluice::ops::portable {

void gatherRows(const GatherRowsArgs& args) {
  if (args.bytes <= 0) return;
  for (int32_t i = 0; i < args.rows; ++i)
    std::memcpy(args.dst + i * args.dstStride, args.src + args.index[i] / args.divisor * args.srcStride,
                static_cast<size_t>(args.bytes));
}

}  // namespace sluice::ops::portable
