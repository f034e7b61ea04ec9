// Sixteen bytes of a matrix whose rows may lie at any address.
#pragma once

#include "ops/gpu/hw.h"

namespace sluice::gpu {

struct alignas(16) Part {
  uint32_t words[4];  // 8 of bf16, the first in the lower half of its word, or 4 of fp32
};

SLUICE_DEVICE bool isAligned(const void* address, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// The first `count` elements, of 2 or 4 bytes: at once where the address allows; 0 for those after them. A
// count may be more than there are in a part, or below 1.
template <int kElementBytes>
SLUICE_DEVICE Part loadPart(const std::byte* from, int count) {
  constexpr int kElements = sizeof(Part) / kElementBytes;
  if (count >= kElements && isAligned(from, sizeof(Part))) return load(reinterpret_cast<const Part*>(from));
  Part part = {};
  SLUICE_UNROLL
  for (int i = 0; i < kElements; ++i) {
    if (i >= count) continue;
    if constexpr (kElementBytes == 4)
      part.words[i] = load(reinterpret_cast<const uint32_t*>(from) + i);
    else
      part.words[i / 2] |= uint32_t{load(reinterpret_cast<const uint16_t*>(from) + i)} << 16 * (i % 2);
  }
  return part;
}

// Stores the first `count` elements likewise.
template <int kElementBytes>
SLUICE_DEVICE void storePart(std::byte* to, const Part& part, int count) {
  constexpr int kElements = sizeof(Part) / kElementBytes;
  if (count >= kElements && isAligned(to, sizeof(Part))) return store(reinterpret_cast<Part*>(to), part);
  SLUICE_UNROLL
  for (int i = 0; i < kElements; ++i) {
    if (i >= count) break;
    if constexpr (kElementBytes == 4)
      store(reinterpret_cast<uint32_t*>(to) + i, part.words[i]);
    else
      store(reinterpret_cast<uint16_t*>(to) + i, static_cast<uint16_t>(part.words[i / 2] >> 16 * (i % 2)));
  }
}

}  // namespace sluice::gpu
