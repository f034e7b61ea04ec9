// The checksum of the blocks on ranks' boards. It protects against accidents, not against a peer that lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice {

// FNV-1a over 64-bit words, the last one padded with zeros; the upper half is folded down, because carries
// only move up. It starts from a number, so that a block of another step does not pass either.
inline uint64_t checksumOf(uint64_t number, const std::byte* data, size_t bytes) {
  uint64_t state = 0xcbf29ce484222325u ^ number;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, std::min(sizeof(word), bytes - at));
    state = (state ^ word) * 0x100000001b3u;
    state ^= state >> 32;
  }
  return state;
}

}  // namespace sluice
