// The size of a cache line, at which words that several cores write lie apart.
#pragma once

#include <cstddef>

namespace sluice {

inline constexpr size_t kCacheLine = 64;  // bytes

constexpr size_t roundUpToLine(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace sluice
