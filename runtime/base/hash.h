// Hashes: 64 bits by XXH3, the same in every process and on every machine. They find accidents, not attacks.
//
// Any thread. The checksum of program files is a separate function (runtime/program/seal.cc), because its
// format is frozen.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

inline uint64_t hashContent(std::span<const std::byte> bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

// The hash of the elements' bytes; the elements must have no padding.
template <class T>
uint64_t hashContent(const T& list, uint64_t seed = 0) {
  return hashContent(std::as_bytes(std::span(list)), seed);
}

}  // namespace sluice
