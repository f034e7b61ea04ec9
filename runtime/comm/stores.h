// Signals for ranks that can store to each other's memory: threads, and processes of one machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/transport.h"

namespace sluice {

// Transport::signal: `word` is the receiver's counter, `bell` its doorbell.
inline void addAndRing(std::byte* word, uint64_t n, Doorbell& bell) {
  // pairs with the load in EventCounter::isComplete()
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).fetch_add(n, std::memory_order_seq_cst);
  bell.ring();
}

// Transport::post.
inline void storeAndRing(std::byte* word, uint64_t value, Doorbell& bell) {
  // pairs with the waiting thread's load of the word
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).store(value, std::memory_order_seq_cst);
  bell.ring();
}

}  // namespace sluice
