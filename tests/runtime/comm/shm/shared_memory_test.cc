// Ranks that share memory, as processes and as threads: the promises of Transport hold across processes.
#include "runtime/comm/shm/shared_memory.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/base/huge_pages.h"
#include "tests/runtime/comm/shm/joined_ranks.h"

namespace sluice {
namespace {

using RunRanks = std::vector<std::string> (*)(int size, const JoinedBody& body);

// Runs all ranks in both ways; they must return "".
void checkRanks(int size, const JoinedBody& body) {
  const RunRanks run = GENERATE(as<RunRanks>(), runProcesses, runThreads);
  INFO((run == runThreads ? "threads" : "processes"));
  for (const std::string& text : run(size, body)) CHECK(text == "");
}

uint64_t load(const std::byte* word) {
  return std::atomic_ref<const uint64_t>(*reinterpret_cast<const uint64_t*>(word))
      .load(std::memory_order_seq_cst);
}

TEST_CASE("what was put before a signal is visible in another process once it sees the signal") {
  checkRanks(2, [](Transport& transport) -> std::string {
    const SymmetricHandle data = *transport.allocate(4096), event = *transport.allocate(64);
    const int peer = 1 - transport.rank();
    for (uint64_t round = 1; round <= 2000; ++round) {
      const size_t place = round % 512 * 8;  // nothing is written again before it was read
      if (transport.rank() == 0) {
        transport.put(peer, data, place, &round, sizeof(round));
        transport.signal(peer, event, 0, 1);
      }
      if (!parkUntil(transport, [&] { return load(transport.local(event)) >= round; }))
        return fmt::format("round {} did not come", round);
      if (transport.rank() == 0) continue;
      uint64_t value = 0;
      std::memcpy(&value, transport.local(data) + place, sizeof(value));
      if (value != round) return fmt::format("found {} in round {}", value, round);
      transport.signal(peer, event, 0, 1);
    }
    return "";
  });
}

TEST_CASE("a sleeper of another process is woken by post at once") {
  for (const std::string& text : runProcesses(2, [](Transport& transport) -> std::string {
         const SymmetricHandle event = *transport.allocate(64);
         if (transport.rank() == 0) {
           usleep(200'000);
           transport.post(1, event, 8, 77);
           return "";
         }
         const Attention attention(transport.doorbell());
         const uint32_t epoch = transport.doorbell().epoch();
         // one sleep, longer than the test may take
         if (load(transport.local(event) + 8) == 0) transport.doorbell().park(epoch, 600'000'000'000);
         return load(transport.local(event) + 8) == 77 ? "" : "woken too early";
       }))
    CHECK(text == "");
}

TEST_CASE("a sleeper is woken by an abort, and by a rank that leaves") {
  // threads: the end of a process would wake it, too
  for (const bool aborts : {true, false}) {
    const auto texts = runThreads(2, [&](Transport& transport) -> std::string {
      if (transport.rank() == 0) {
        usleep(100'000);
        if (aborts) transport.abort("it ends");
        return "";
      }
      const Attention attention(transport.doorbell());
      const uint32_t epoch = transport.doorbell().epoch();
      // one sleep, longer than the test may take
      if (!transport.isAborted() && !transport.hasLeft(0)) transport.doorbell().park(epoch, 600'000'000'000);
      return aborts ? transport.abortMessage() : fmt::format("left {}", transport.hasLeft(0));
    });
    CHECK(texts[1] == (aborts ? "it ends" : "left true"));
  }
}

TEST_CASE("signals of all ranks to one add up, the own included") {
  checkRanks(4, [](Transport& transport) -> std::string {
    const SymmetricHandle event = *transport.allocate(64);
    for (int i = 0; i < 500; ++i)
      for (int rank = 0; rank < 4; ++rank) transport.signal(rank, event, 16, 3);
    const auto all = [&] { return load(transport.local(event) + 16) == 4 * 500 * 3; };
    return parkUntil(transport, all) ? "" : fmt::format("{}", load(transport.local(event) + 16));
  });
}

TEST_CASE("every rank reaches every copy of every allocation, small and large, empty and odd") {
  checkRanks(3, [](Transport& transport) -> std::string {
    constexpr size_t kSizes[] = {1, 4096, 0, 5000, kHugePageBytes * 2, kHugePageBytes * 5 + 123, 64};
    std::vector<SymmetricHandle> handles;
    for (const size_t bytes : kSizes) {
      auto handle = transport.allocate(bytes);
      if (!handle) return handle.error().message;
      if (handle->index != handles.size()) return "a handle is not the next";
      handles.push_back(*handle);
    }
    const SymmetricHandle done = *transport.allocate(8);
    for (size_t i = 0; i < handles.size(); ++i) {
      if (kSizes[i] == 0) continue;
      if (reinterpret_cast<uintptr_t>(transport.local(handles[i])) % 4096 != 0) return "not aligned";
      for (int rank = 0; rank < 3; ++rank) {
        // the last byte of each copy has a byte from each rank before it, where there is room for it
        const size_t place = kSizes[i] - 1 - (kSizes[i] > 3 ? static_cast<size_t>(transport.rank()) : 0);
        if (kSizes[i] == 1 && transport.rank() != 0) continue;
        const auto value = static_cast<std::byte>(1 + i * 16 + static_cast<size_t>(rank));
        if (rank % 2) {
          transport.direct(rank, handles[i])[place] = value;
        } else {
          transport.put(rank, handles[i], place, &value, 1);
        }
      }
    }
    for (int rank = 0; rank < 3; ++rank) transport.signal(rank, done, 0, 1);
    if (!parkUntil(transport, [&] { return load(transport.local(done)) == 3; })) return "not all came";
    for (size_t i = 0; i < handles.size(); ++i) {
      const auto expected = static_cast<std::byte>(1 + i * 16 + static_cast<size_t>(transport.rank()));
      for (size_t back = 1; back <= std::min<size_t>(kSizes[i], 3); ++back)
        if (transport.local(handles[i])[kSizes[i] - back] != expected)
          return fmt::format("allocation {}: byte {} from the end is another", i, back);
      if (kSizes[i] > 4096 && transport.local(handles[i])[0] != std::byte{0}) return "not zero";
    }
    return "";
  });
}

TEST_CASE("ranks that allocate different sizes are told so, with both ranks") {
  checkRanks(2, [](Transport& transport) -> std::string {
    const SymmetricHandle turn = *transport.allocate(64);
    if (transport.rank() == 1 && !parkUntil(transport, [&] { return load(transport.local(turn)) == 1; }))
      return "no turn";
    auto handle = transport.allocate(transport.rank() == 0 ? 128 : 256);
    if (transport.rank() == 0) {
      transport.signal(1, turn, 0, 1);
      return handle ? "" : handle.error().message;
    }
    if (handle) return "another size was accepted";
    return handle.error().message == "symmetric allocation 1 has 128 bytes at rank 0 and 256 at rank 1"
               ? ""
               : handle.error().message;
  });
}

TEST_CASE("what no shared memory holds is an error, and what fits after it is there") {
  checkRanks(2, [](Transport& transport) -> std::string {
    const auto most = transport.allocate(~size_t{0});
    if (most) return "all of the address space was given";
    if (most.error().message.find("shared memory has room for") == std::string::npos)
      return most.error().message;
    if (transport.allocate(size_t{1} << 46)) return "twice the file was given";
    return transport.allocate(4096) ? "" : "4096 bytes were not given";
  });
}

TEST_CASE("the first abort is what every rank reads") {
  checkRanks(3, [](Transport& transport) -> std::string {
    const SymmetricHandle event = *transport.allocate(64);
    if (transport.rank() == 1) transport.abort("first");
    if (!parkUntil(transport, [&] { return transport.isAborted(); })) return "not aborted";
    transport.abort("later");
    if (transport.abortMessage() != "first") return transport.abortMessage();
    // nobody leaves before all have looked
    for (int rank = 0; rank < 3; ++rank) transport.signal(rank, event, 0, 1);
    return parkUntil(transport, [&] { return load(transport.local(event)) == 3; }) ? "" : "not all looked";
  });
}

TEST_CASE("of aborts at once one is the first, and a message that is too long loses its end") {
  checkRanks(4, [](Transport& transport) -> std::string {
    const SymmetricHandle board = *transport.allocate(64);
    const char letter = static_cast<char>('a' + transport.rank());
    transport.abort(std::string(100'000, letter));
    const std::string message = transport.abortMessage();
    if (message.empty() || message != std::string(message.size(), message[0])) return "mixed messages";
    transport.signal(0, board, 8 * static_cast<size_t>(1 + message[0] - 'a'), 1);
    if (transport.rank() != 0) return "";
    const auto agreed = [&] {
      for (size_t rank = 1; rank <= 4; ++rank)
        if (load(transport.local(board) + 8 * rank) == 4) return true;
      return false;
    };
    return parkUntil(transport, agreed) ? "" : "ranks read different messages";
  });
}

TEST_CASE("a rank that left is known to have, and is not lost") {
  checkRanks(2, [](Transport& transport) -> std::string {
    if (transport.rank() == 1) return "";
    if (!parkUntil(transport, [&] { return transport.hasLeft(1); })) return "rank 1 has not left";
    usleep(100'000);  // by now its process has ended, too
    if (transport.isAborted() || transport.lostRank() != -1) return transport.abortMessage();
    return transport.hasLeft(0) ? "this rank has left" : "";
  });
}

TEST_CASE("a job of one rank needs nobody") {
  checkRanks(1, [](Transport& transport) -> std::string {
    const SymmetricHandle event = *transport.allocate(8);
    transport.signal(0, event, 0, 5);
    return transport.kind() == "shm" && load(transport.local(event)) == 5 ? "" : "not signalled";
  });
}

TEST_CASE("the worst case is reserved, not taken") {
  // 64 GiB at each of 8 ranks: more than a machine of the suite has
  for (const std::string& text : runProcesses(8, [](Transport& transport) -> std::string {
         auto handle = transport.allocate(size_t{1} << 36);
         if (!handle) return handle.error().message;
         std::byte* memory = transport.local(*handle);
         if (memory[size_t{1} << 35] != std::byte{0}) return "not zero";
         memory[(size_t{1} << 36) - 1] = std::byte{1};
         return "";
       }))
    CHECK(text == "");
}

TEST_CASE("ranks, sizes and names that no job has are errors") {
  const auto message = [](const SharedMemoryJob& job) {
    auto transport = joinSharedMemory(job);
    return transport ? "" : transport.error().message;
  };
  CHECK(message({"a", 0, 0, 1}) == "shared memory for 0 ranks, expected 1 to 240");
  CHECK(message({"a", 0, 241, 1}) == "shared memory for 241 ranks, expected 1 to 240");
  CHECK(message({"a", 2, 2, 1}) == "shared memory for rank 2, expected 0 to 1");
  CHECK(message({"a", -1, 2, 1}) == "shared memory for rank -1, expected 0 to 1");
  CHECK(message({"", 0, 2, 1}) == "the name of the job has 0 bytes, expected 1 to 64");
  CHECK(message({std::string(65, 'a'), 0, 2, 1}) == "the name of the job has 65 bytes, expected 1 to 64");
}

}  // namespace
}  // namespace sluice
