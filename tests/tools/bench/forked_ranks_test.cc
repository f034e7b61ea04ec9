#include "tools/bench/forked_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace sluice::tools {
namespace {

// Answers every request with its rank and how many there were.
Status count(int rank, RankSocket& socket) {
  for (int n = 1; socket.next(); ++n) socket.answer(std::to_string(rank) + ":" + std::to_string(n));
  return {};
}

TEST_CASE("each rank answers each request, and that of the first is returned") {
  ForkedRanks ranks;
  REQUIRE(ranks.start(3, count).ok());
  for (int n = 1; n <= 3; ++n) {
    ranks.ask();
    const auto answer = ranks.answers();
    REQUIRE(answer.ok());
    CHECK(*answer == "0:" + std::to_string(n));
  }
}

TEST_CASE("groups end in any order, though later processes have the sockets of earlier ones") {
  auto first = std::make_unique<ForkedRanks>();
  REQUIRE(first->start(2, count).ok());
  ForkedRanks second;
  REQUIRE(second.start(2, count).ok());
  first.reset();  // would wait for ever for processes that do not see the end
  second.ask();
  CHECK(second.answers().ok());
}

TEST_CASE("the error of a rank is returned, whichever rank has it") {
  ForkedRanks ranks;
  const auto body = [](int rank, RankSocket& socket) -> Status {
    if (rank == 1) return Error{"rank 1: no memory"};
    return count(rank, socket);
  };
  REQUIRE(ranks.start(3, body).ok());
  ranks.ask();
  const auto answer = ranks.answers();
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().message == "rank 1: no memory");
}

TEST_CASE("a rank that is killed is named") {
  ForkedRanks ranks;
  const auto body = [](int rank, RankSocket& socket) -> Status {
    if (rank == 2 && socket.next()) kill(getpid(), SIGKILL);
    return count(rank, socket);
  };
  REQUIRE(ranks.start(3, body).ok());
  ranks.ask();
  const auto answer = ranks.answers();
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().message == "the process of rank 2 ended without an answer");
}

}  // namespace
}  // namespace sluice::tools
