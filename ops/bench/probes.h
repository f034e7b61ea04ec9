// Probes of memory bandwidth, beside the register peaks of peak.h: what a kernel that does nothing but read,
// or write past the caches, reaches on this machine.
//
// Rates are bytes per second of the calling thread's CPU time: while others have its core, time does not
// count. No state; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::ops {

// Reads every whole cache line of `memory` once, in order, with the widest loads of this machine; returns
// their words' exclusive or. `memory` is 64-byte aligned.
uint64_t readMemory(std::span<const std::byte> memory);

// Writes every whole cache line of `memory` with non-temporal stores (ordinary ones where there are none) of
// `word`, and a fence. `memory` is 64-byte aligned.
void streamMemory(std::span<std::byte> memory, uint64_t word);

struct Bandwidth {
  double best;    // bytes a second, the fastest repetition
  double median;  // over the repetitions
};

// Over all of `memory`, `repeats` (at least 1) times. Memory far larger than the caches, written before: a
// first touch is no measurement. streamBandwidth overwrites it.
Bandwidth readBandwidth(std::span<const std::byte> memory, int repeats);
Bandwidth streamBandwidth(std::span<std::byte> memory, int repeats);

}  // namespace sluice::ops
