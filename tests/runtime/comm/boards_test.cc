// Blocks that all ranks read, stored at rank 0 or at each of them.
#include "runtime/comm/boards.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "runtime/comm/in_process.h"
#include "tests/testing/forwarding_transport.h"

namespace sluice {
namespace {

constexpr int kRanks = 3;
constexpr size_t kBytes = 70;

std::vector<std::byte> findBlock(uint64_t number, int rank) {
  return std::vector<std::byte>(kBytes,
                                static_cast<std::byte>(10 * number + static_cast<uint64_t>(rank) + 1));
}

// The boards of all ranks; a ForwardingTransport does not report shared memory.
struct World {
  explicit World(bool shares) : group(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      own.push_back(std::make_unique<ForwardingTransport>(group.transport(rank)));
      boards.push_back(*Boards::create(shares ? group.transport(rank) : *own.back(), kBytes, 24));
    }
  }
  void putAll(uint64_t number) {
    for (int rank = 0; rank < kRanks; ++rank) boards[rank].put(number, findBlock(number, rank));
  }
  InProcessGroup group;
  std::vector<std::unique_ptr<Transport>> own;
  std::vector<Boards> boards;
};

TEST_CASE("every rank reads the last two blocks of every rank") {
  for (const bool shares : {true, false}) {
    World world(shares);
    for (uint64_t number = 1; number < 6; ++number) {
      world.putAll(number);
      for (const Boards& boards : world.boards)
        for (int source = 0; source < kRanks; ++source)
          for (uint64_t last = number < 2 ? number : number - 1; last <= number; ++last) {
            REQUIRE(boards.isWhole(last, source));
            CHECK(std::ranges::equal(std::span(boards.of(last, source), kBytes), findBlock(last, source)));
            CHECK(boards.of(last, 1) - boards.of(last, 0) == static_cast<ptrdiff_t>(boards.stride()));
          }
      CHECK_FALSE(world.boards[1].isWhole(number + 1, 2));
    }
  }
}

TEST_CASE("where ranks share their memory only rank 0 holds blocks, and words are each rank's own") {
  World world(true);
  world.putAll(1);
  const size_t bytes = 64 + 2 * kRanks * world.boards[0].stride();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::byte* const memory = world.group.transport(rank).local(world.boards[rank].words());
    CHECK(std::all_of(memory, memory + 24, [](std::byte byte) { return byte == std::byte{0}; }));
    CHECK(std::any_of(memory, memory + bytes, [](std::byte byte) { return byte != std::byte{0}; }) ==
          (rank == 0));
  }
}

TEST_CASE("a block that was damaged is damaged for every rank that reads it") {
  World world(true);
  world.putAll(1);
  const_cast<std::byte*>(world.boards[0].of(1, 2))[33] ^= std::byte{1};
  for (const Boards& boards : world.boards) {
    CHECK(boards.isWhole(1, 1));
    CHECK_FALSE(boards.isWhole(1, 2));
  }
}

}  // namespace
}  // namespace sluice
