// Blocks of all ranks, and the errors if one does not arrive, or is damaged.
#include "runtime/comm/all_gather.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "runtime/comm/in_process.h"
#include "tests/testing/forwarding_transport.h"

namespace sluice {
namespace {

constexpr Awaited kAwaited{"the figures", "after the test"};

std::string messageOf(const Status& status) { return status ? "" : status.error().message; }

// A transport that reports which ranks are gone, and can damage puts on their way.
class UnluckyTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  int lostRank() const override { return lost; }
  bool hasLeft(int rank) const override { return rank == left; }
  bool isStopped(int rank) const override { return rank == stopped; }
  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override {
    std::vector<std::byte> copy(bytes);
    std::memcpy(copy.data(), data, bytes);
    if (damage >= 0) copy[static_cast<size_t>(damage)] ^= std::byte{4};
    real_.put(rank, handle, offset, copy.data(), bytes);
  }

  int lost = -1, left = -1, stopped = -1;
  int damage = -1;  // byte
};

TEST_CASE("every rank gets the blocks of all ranks, again and again") {
  constexpr int kRanks = 4;
  InProcessGroup group(kRanks);
  std::vector<int> wrong(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      auto gather = AllGather::create(group.transport(rank), 100);
      if (!gather) return;
      for (int round = 0; round < 300; ++round) {
        std::vector<std::byte> own(100, static_cast<std::byte>(round + rank));
        if (!gather->gather(own, kAwaited, 20)) ++wrong[rank];
        for (int source = 0; source < kRanks; ++source)
          for (int i = 0; i < 100; ++i)
            wrong[rank] += gather->of(source)[i] != static_cast<std::byte>(round + source);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(kRanks));
}

TEST_CASE("a block can be posted without waiting, and be looked for") {
  InProcessGroup group(2);
  auto first = AllGather::create(group.transport(0), 8), second = AllGather::create(group.transport(1), 8);
  REQUIRE((first.ok() && second.ok()));
  const std::vector<std::byte> block(8, std::byte{7});
  first->post(block);
  CHECK(first->isThere(0));
  CHECK_FALSE(first->isThere(1));
  second->post(block);
  CHECK(first->isThere(1));
  CHECK(second->isThere(0));
  CHECK(second->await(kAwaited, 1).ok());
}

TEST_CASE("a block that was damaged on its way is an error at whoever reads it, whatever byte it was") {
  for (const int damage : {0, 7, 8, 15, 16, 27}) {
    InProcessGroup group(2);
    UnluckyTransport sender(group.transport(1));
    sender.damage = damage;
    auto receiving = AllGather::create(group.transport(0), 20), sending = AllGather::create(sender, 20);
    REQUIRE((receiving.ok() && sending.ok()));
    const std::vector<std::byte> block(20, std::byte{9});
    sending->post(block);
    CHECK_FALSE(receiving->isThere(1));
    CHECK(messageOf(receiving->gather(block, kAwaited, 1)) ==
          "rank 0: the figures of rank 1 after the test arrived damaged");
    CHECK(group.transport(1).isAborted());
  }
}

TEST_CASE("a rank that has left is named at once, unless its block is there") {
  InProcessGroup group(2);
  UnluckyTransport own(group.transport(0));
  own.left = 1;
  auto gather = AllGather::create(own, 8), other = AllGather::create(group.transport(1), 8);
  REQUIRE((gather.ok() && other.ok()));
  const std::vector<std::byte> block(8);
  other->post(block);
  CHECK(gather->gather(block, kAwaited, 60).ok());
  CHECK(messageOf(gather->gather(block, kAwaited, 60)) ==
        "rank 1 left while rank 0 was still waiting for the figures of rank 1 after the test");
}

TEST_CASE("the loss of a rank is reported with what was waited for") {
  InProcessGroup group(2);
  UnluckyTransport own(group.transport(0));
  own.lost = 1;
  own.abort("rank 1 (process 4711) has died");
  auto gather = AllGather::create(own, 8);
  REQUIRE(gather.ok());
  CHECK(messageOf(gather->gather(std::vector<std::byte>(8), kAwaited, 60)) ==
        "rank 1 (process 4711) has died; rank 0 was waiting for the figures of rank 1 after the test");
}

TEST_CASE("a rank that does not come is named when the time is over") {
  InProcessGroup group(2);
  auto gather = AllGather::create(group.transport(1), 8);
  REQUIRE(gather.ok());
  CHECK(messageOf(gather->gather(std::vector<std::byte>(8), kAwaited, 0.05)) ==
        "rank 1: waited 0.05 s for the figures of rank 0 after the test");
}

TEST_CASE("all ranks that do not come are named, and those that are stopped") {
  InProcessGroup group(4);
  UnluckyTransport own(group.transport(1));
  own.stopped = 3;
  auto gather = AllGather::create(own, 8), other = AllGather::create(group.transport(2), 8);
  REQUIRE((gather.ok() && other.ok()));
  other->post(std::vector<std::byte>(8));
  CHECK(messageOf(gather->gather(std::vector<std::byte>(8), kAwaited, 0.05)) ==
        "rank 1: waited 0.05 s for the figures of ranks 0, 3 after the test; rank 3 is stopped");
}

}  // namespace
}  // namespace sluice
