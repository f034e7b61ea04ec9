// Sixteen bytes of a matrix whose rows may lie at any address.
#pragma once

#include <type_traits>

#include "ops/gpu/hw.h"

namespace sluice::gpu {

template <int kBytes>
using ElementOf = std::conditional_t<kBytes == 4, uint32_t, uint16_t>;

struct alignas(16) Part {
  uint32_t words[4];  // 8 of bf16, the first in the lower half of its word, or 4 of fp32
};

SLUICE_DEVICE bool isAligned(const void* address, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// Moves the elements of a part to the next place, or to the one before.
template <int kElementBytes>
SLUICE_DEVICE void shiftUp(Part* part) {
  constexpr int kBits = 8 * kElementBytes % 32;  // 0: whole words
  SLUICE_UNROLL
  for (int i = 3; i > 0; --i)
    part->words[i] = kBits == 0 ? part->words[i - 1] : part->words[i] << kBits | part->words[i - 1] >> kBits;
  part->words[0] = kBits == 0 ? 0 : part->words[0] << kBits;
}
template <int kElementBytes>
SLUICE_DEVICE void shiftDown(Part* part) {
  constexpr int kBits = 8 * kElementBytes % 32;
  SLUICE_UNROLL
  for (int i = 0; i < 3; ++i)
    part->words[i] = kBits == 0 ? part->words[i + 1] : part->words[i] >> kBits | part->words[i + 1] << kBits;
  part->words[3] = kBits == 0 ? 0 : part->words[3] >> kBits;
}

// The first `count` elements, of 2 or 4 bytes: at once where the address allows, else one by one; 0 for those
// after them. A count may be more than there are in a part, or below 1.
template <int kElementBytes>
SLUICE_DEVICE Part loadPart(const std::byte* from, int count) {
  constexpr int kElements = sizeof(Part) / kElementBytes;
  if (count >= kElements && isAligned(from, sizeof(Part))) return load(reinterpret_cast<const Part*>(from));
  Part part = {};
  SLUICE_LOOP
  for (int i = (count < kElements ? count : kElements) - 1; i >= 0; --i) {
    shiftUp<kElementBytes>(&part);
    part.words[0] |= load(reinterpret_cast<const ElementOf<kElementBytes>*>(from) + i);
  }
  return part;
}

// Stores the first `count` elements likewise.
template <int kElementBytes>
SLUICE_DEVICE void storePart(std::byte* to, Part part, int count) {
  using Element = ElementOf<kElementBytes>;
  constexpr int kElements = sizeof(Part) / kElementBytes;
  if (count >= kElements && isAligned(to, sizeof(Part))) return store(reinterpret_cast<Part*>(to), part);
  SLUICE_LOOP
  for (int i = 0; i < count && i < kElements; ++i) {
    store(reinterpret_cast<Element*>(to) + i, static_cast<Element>(part.words[0]));
    shiftDown<kElementBytes>(&part);
  }
}

}  // namespace sluice::gpu
