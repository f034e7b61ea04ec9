// Probes of memory bandwidth, next to the register peaks of peak.h: what a kernel reaches on this machine
// that only reads, or only writes past the caches.
//
// Rates are bytes per second of the calling thread's CPU time, so time that others use on its core does not
// count. No state; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::ops {

// Reads every whole cache line of `memory` once, in order, with the widest loads of this machine, and returns
// the exclusive or of their words. `memory` must be 64-byte aligned.
uint64_t readMemory(std::span<const std::byte> memory);

// Writes `word` to every whole cache line of `memory` with non-temporal stores (ordinary stores if the
// machine has none), then a fence. `memory` must be 64-byte aligned.
void streamMemory(std::span<std::byte> memory, uint64_t word);

struct Bandwidth {
  double best;    // bytes per second of the fastest repetition
  double median;  // over the repetitions
};

// Over all of `memory`, `repeats` (at least 1) times. `memory` must be far larger than the caches and already
// written, because a first touch is no measurement. streamBandwidth overwrites it.
Bandwidth readBandwidth(std::span<const std::byte> memory, int repeats);
Bandwidth streamBandwidth(std::span<std::byte> memory, int repeats);

}  // namespace sluice::ops
