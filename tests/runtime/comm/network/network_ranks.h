// Ranks that reach each other over a network, in the tests of every such transport.
//
// SLUICE_TEST_MESSAGES=1: neighbours, too, reach each other over the network only.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>

#include "runtime/comm/all_gather.h"
#include "runtime/comm/transport.h"

namespace sluice {

// Collective. Each test program has its own: mpi/mpi_ranks.cc, ucx/ucx_ranks.cc.
std::unique_ptr<Transport> joinNetwork(double timeoutSeconds = 20);

inline std::atomic_ref<uint64_t> wordOf(Transport& transport, SymmetricHandle handle, size_t offset = 0) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(transport.local(handle) + offset));
}

// Parks like the executors. Returns false if nothing came within 20 s.
inline bool awaitWord(Transport& transport, SymmetricHandle handle, size_t offset, uint64_t value) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const Attention attention(transport.doorbell());
  while (true) {
    const uint32_t epoch = transport.doorbell().epoch();
    if (wordOf(transport, handle, offset).load(std::memory_order_seq_cst) >= value) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    transport.doorbell().park(epoch, 100'000'000);
  }
}

// No rank continues before all have arrived.
inline void meet(AllGather& gather, Transport& transport) {
  const std::byte nothing{};
  const Status all = gather.gather({&nothing, 1}, {"the meeting", "of the test"}, 20);
  INFO((all ? "" : all.error().message));
  REQUIRE(all.ok());
  REQUIRE_FALSE(transport.isAborted());
}

}  // namespace sluice
