#include "runtime/base/threads.h"

#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>

#include "tests/testing/scarce_threads.h"

namespace sluice {
namespace {

TEST_CASE("threads that run together all run at once, each with its number") {
  std::barrier meeting(5);
  std::atomic<int> sum{0};
  REQUIRE(runTogether(5, "a test", [&](int number) {
            meeting.arrive_and_wait();
            sum += 1 << number;
          }).ok());
  CHECK(sum == 31);
}

TEST_CASE("where one of them cannot be started none runs, none is left, and the error counts them") {
  const int before = threadsOfProcess();
  for (int left = 0; left < 5; ++left) {
    const ScarceThreads scarce(left);
    std::atomic<int> run{0};
    const Status status = runTogether(5, "a test", [&](int) { ++run; });
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().message ==
          "started " + std::to_string(left) +
              " of 5 threads for a test: Resource temporarily unavailable (limits of processes and of memory "
              "count threads, too)");
    CHECK(run == 0);
    CHECK(scarce.refused() == 1);
    CHECK(threadsOfProcess() == before);
  }
}

TEST_CASE("one thread that cannot be started is an error that says why") {
  const ScarceThreads scarce(0);
  const auto thread = startThread("none", [] {});
  REQUIRE_FALSE(thread.ok());
  CHECK(thread.error().message == "Resource temporarily unavailable");
}

}  // namespace
}  // namespace sluice
