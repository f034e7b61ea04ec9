// Hashes: 64 bits by XXH3, the same in every process and on every machine. They find accidents, not attacks.
//
// Any thread. The checksum of program files is a function of its own (runtime/program/seal.cc): its format is
// frozen.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

inline uint64_t hashOf(std::span<const std::byte> bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

// Of the elements' bytes, which must have no padding.
template <class T>
uint64_t hashOf(const T& list, uint64_t seed = 0) {
  return hashOf(std::as_bytes(std::span(list)), seed);
}

}  // namespace sluice
