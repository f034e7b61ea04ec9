// The loop of largest magnitudes, which compilers vectorise. Internal linkage: see ops/cpu/blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

inline void amaxLoop(const AmaxArgs& args) {
  constexpr int32_t kBlock = 64;
  int16_t most[kBlock] = {};
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const row = args.a + r * args.lda;
    for (int32_t j = 0; j < args.n; j += kBlock) {
      const int32_t count = args.n - j < kBlock ? args.n - j : kBlock;
      for (int32_t i = 0; i < count; ++i) {
        const auto bits = static_cast<int16_t>(row[j + i].bits & 0x7fff);
        const auto finite = static_cast<int16_t>(bits < 0x7f80 ? bits : 0);
        most[i] = most[i] > finite ? most[i] : finite;
      }
    }
  }
  int16_t largest = 0;
  for (const int16_t each : most) largest = each > largest ? each : largest;
  *args.amax = __builtin_bit_cast(float, largest < 0x80 ? 0u : static_cast<uint32_t>(largest) << 16);
}

}  // namespace
}  // namespace sluice::ops
