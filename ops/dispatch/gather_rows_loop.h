// The gather of rows: one copy per row, for which the C library uses the best instructions of the machine.
// Internal linkage: see ops/cpu/blocked_product.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// kBytes: the bytes of a row, so that the compiler knows them and copies a row by one instruction; 0:
// args.bytes.
template <size_t kBytes>
void gather(const GatherRowsArgs& args) {
  const size_t bytes = kBytes != 0 ? kBytes : static_cast<size_t>(args.bytes);
  for (int32_t i = 0; i < args.rows; ++i) {
    const int32_t index = args.index == nullptr ? i : args.index[i];
    std::byte* const row = args.dst + i * args.dstStride;
    if (index < 0)
      __builtin_memset(row, 0, bytes);
    else
      __builtin_memcpy(row, args.src + index / args.divisor * args.srcStride, bytes);
  }
}

inline void gatherRowsLoop(const GatherRowsArgs& args) {
  if (args.bytes == sizeof(float))
    gather<sizeof(float)>(args);
  else if (args.bytes > 0)
    gather<0>(args);
}

}  // namespace
}  // namespace sluice::ops
