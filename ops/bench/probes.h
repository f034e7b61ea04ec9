// Probes of memory bandwidth, next to the register peaks of peak.h: what a kernel reaches on this machine
// that only reads, or only writes past the caches. No state; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::ops {

// A std::vector of these is memory with the alignment that kernels and probes need.
struct alignas(64) CacheLine {
  std::byte bytes[64] = {};
};

// `bytes` (a multiple of 64) of zeros in huge pages, as weights have them: with small pages reading is
// slower.
std::vector<CacheLine> probedMemory(size_t bytes);

// Reads every line once, in order, with the widest loads of this machine, and returns the exclusive or of
// their words.
uint64_t readMemory(std::span<const CacheLine> memory);

// Writes `word` to every line with non-temporal stores (ordinary stores if the machine has none), then a
// fence. A first touch is no measurement.
void streamMemory(std::span<CacheLine> memory, uint64_t word);

}  // namespace sluice::ops
