// The gather of rows: one copy per row, for which the C library uses the best instructions of the machine.
#include <cstring>
#include <type_traits>

#include "ops/cpu/kernel_functions.h"

namespace sluice::ops::portable {
namespace {

// `bytes` is a constant if rows are small: then a copy is one instruction.
template <class Size>
void gather(const GatherRowsArgs& args, Size bytes) {
  for (int32_t i = 0; i < args.rows; ++i) {
    const int32_t index = args.index == nullptr ? i : args.index[i];
    std::byte* const row = args.dst + i * args.dstStride;
    if (index < 0)
      std::memset(row, 0, bytes);
    else
      std::memcpy(row, args.src + index / args.divisor * args.srcStride, bytes);
  }
}

}  // namespace

void gatherRows(const GatherRowsArgs& args) {
  if (args.bytes == sizeof(float))
    gather(args, std::integral_constant<size_t, sizeof(float)>());
  else if (args.bytes > 0)
    gather(args, static_cast<size_t>(args.bytes));
}

}  // namespace sluice::ops::portable
