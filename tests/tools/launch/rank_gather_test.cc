#include "tools/launch/rank_gather.h"

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "runtime/comm/in_process.h"

namespace sluice::tools {
namespace {

// Calls `work` in a thread for each rank.
void onRanks(int ranks, const std::function<void(Transport&, RankGather&)>& work, double timeout = 30) {
  InProcessGroup group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Expected<RankGather> gather = RankGather::create(group.transport(rank), timeout);
      if (gather) work(group.transport(rank), *gather);
    });
  for (std::thread& thread : threads) thread.join();
}

constexpr Awaited kAwaited = {"the texts", "in a test"};

TEST_CASE("every rank gets the texts of all, empty, short and long, again and again") {
  std::vector<int> right(4);
  onRanks(4, [&](Transport& transport, RankGather& gather) {
    const int rank = transport.rank();
    for (size_t length : {size_t{0}, size_t{1}, size_t{1} << 15, (size_t{1} << 15) + 1, size_t{200000}}) {
      const auto text = [&](int of) { return std::string(length * static_cast<size_t>(of), char('a' + of)); };
      const auto all = gather.gather(text(rank), kAwaited);
      if (all && *all == std::vector<std::string>{text(0), text(1), text(2), text(3)})
        ++right[static_cast<size_t>(rank)];
    }
  });
  CHECK(right == std::vector<int>(4, 5));
}

TEST_CASE("what is for one rank is kept by that one only") {
  std::vector<size_t> kept(2);
  onRanks(2, [&](Transport& transport, RankGather& gather) {
    const auto all = gather.gather("text", kAwaited, 1);
    for (const std::string& text : *all) kept[static_cast<size_t>(transport.rank())] += text.size();
  });
  CHECK(kept == std::vector<size_t>{0, 8});
}

TEST_CASE("all ranks know the first that cannot go on, and why") {
  std::vector<std::string> known(3);
  onRanks(3, [&](Transport& transport, RankGather& gather) {
    const int rank = transport.rank();
    const auto well = gather.agree({}, kAwaited);
    const auto failure =
        gather.agree(rank == 0 ? Status{} : Status{Error{"no disk " + std::to_string(rank)}}, kAwaited);
    if (well && !*well && failure && *failure && (*failure)->rank == 1)
      known[static_cast<size_t>(rank)] = (*failure)->message;
  });
  CHECK(known == std::vector<std::string>(3, "rank 1: no disk 1"));
}

TEST_CASE("what all ranks find alike is no single rank's") {
  std::string message;
  onRanks(2, [&](Transport& transport, RankGather& gather) {
    const auto failure = gather.agree(Error{"no program"}, kAwaited);
    if (transport.rank() == 0) message = (*failure)->message;
  });
  CHECK(message == "no program");
}

TEST_CASE("a rank that does not come is named within the limit") {
  std::string message;
  onRanks(
      2,
      [&](Transport& transport, RankGather& gather) {
        if (transport.rank() == 1) return;
        message = gather.gather("text", kAwaited).error().message;
      },
      0.05);
  CHECK(message == "rank 0: waited 0.05 s for the texts of rank 1 in a test");
}

}  // namespace
}  // namespace sluice::tools
