#include "runtime/comm/in_process.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

namespace sluice {
namespace {

TEST_CASE("what was put before a signal is visible to whoever sees the signal") {
  InProcessGroup group(2);
  Transport& sender = group.transport(0);
  Transport& receiver = group.transport(1);
  const SymmetricHandle data = *sender.allocate(4096);
  const SymmetricHandle event = *sender.allocate(64);
  REQUIRE(receiver.allocate(4096)->index == data.index);
  REQUIRE(receiver.allocate(64)->index == event.index);

  constexpr uint64_t kRounds = 2000;
  std::thread peer([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      // one place a round: nothing is written again before it was read
      sender.put(1, data, round % 512 * 8, &round, sizeof(round));
      sender.signal(1, event, 0, 1);
      while (std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(sender.local(event)))
                 .load(std::memory_order_acquire) < round)
        std::this_thread::yield();
    }
  });
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(receiver.local(event)));
    while (word.load(std::memory_order_seq_cst) < round) {
      const Attention attention(receiver.doorbell());
      const uint32_t epoch = receiver.doorbell().epoch();
      if (word.load(std::memory_order_seq_cst) < round) receiver.doorbell().park(epoch, 60'000'000'000);
    }
    uint64_t value = 0;
    std::memcpy(&value, receiver.local(data) + round % 512 * 8, sizeof(value));
    REQUIRE(value == round);
    receiver.signal(0, event, 0, 1);
  }
  peer.join();
}

TEST_CASE("a ring between the look at the epoch and the park is not lost") {
  Doorbell bell;
  const Attention attention(bell);
  const uint32_t epoch = bell.epoch();
  bell.ring();
  bell.park(epoch, 60'000'000'000);  // returns at once: the epoch has moved
  SUCCEED();
}

TEST_CASE("a ring that nobody attends to leaves the bell as it is") {
  Doorbell bell;
  const uint32_t epoch = bell.epoch();
  bell.ring();
  CHECK(bell.epoch() == epoch);
}

TEST_CASE("ranks that allocate different sizes are told so") {
  InProcessGroup group(2);
  REQUIRE(group.transport(0).allocate(128).ok());
  CHECK(group.transport(1).allocate(256).error().message ==
        "symmetric allocation 0 has 128 bytes at one rank and 256 at another");
}

TEST_CASE("the first abort is what every rank reads") {
  InProcessGroup group(3);
  CHECK_FALSE(group.transport(0).isAborted());
  group.transport(1).abort("first");
  group.transport(2).abort("second");
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(group.transport(rank).isAborted());
    CHECK(group.transport(rank).abortMessage() == "first");
  }
}

TEST_CASE("the worst case is reserved, not taken") {
  InProcessGroup group(8);
  // 64 GiB at each of 8 ranks: more than a machine of the suite has
  const auto handle = group.transport(0).allocate(size_t{1} << 36);
  REQUIRE(handle.ok());
  std::byte* memory = group.transport(0).local(*handle);
  CHECK(memory[size_t{1} << 35] == std::byte{0});
  memory[(size_t{1} << 36) - 1] = std::byte{1};
}

}  // namespace
}  // namespace sluice
