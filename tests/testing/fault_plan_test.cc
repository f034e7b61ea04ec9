#include "tests/testing/fault_plan.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

TEST_CASE("a plan is the text it prints") {
  CHECK(toText({}) == "seed=0");
  CHECK(toText({.seed = 17, .delay = 3, .reorder = 5, .duplicate = 2, .hide = true, .rank = 2, .die = 97}) ==
        "seed=17 delay=3% reorder=5% duplicate=2% die@n=97 rank=2 hide");
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const FaultPlan plan = randomFaultPlan(seed, 4, 300);
    const auto read = parseFaultPlan(toText(plan));
    REQUIRE(read.ok());
    CHECK(*read == plan);
  }
}

TEST_CASE("words may stand in any order, and percents without their sign") {
  const auto plan = parseFaultPlan("  rank=1 drop@n=412   delay=30 seed=4 ");
  REQUIRE(plan.ok());
  CHECK(*plan == FaultPlan{.seed = 4, .delay = 30, .rank = 1, .drop = 412});
  CHECK(parseFaultPlan("")->isNone());
}

TEST_CASE("what is no plan is refused with the word") {
  const auto messageOf = [](std::string_view text) { return parseFaultPlan(text).error().message; };
  CHECK(messageOf("seed=1 flood") == "fault plan: 'flood' is no fault");
  CHECK(messageOf("delay=101%") == "fault plan: 'delay=101%', expected a number from 0 to 100");
  CHECK(messageOf("die@n=") == "fault plan: 'die@n=', expected a number from 0 to 4611686018427387904");
  CHECK(messageOf("delay=-1") == "fault plan: 'delay=-1', expected a number from 0 to 100");
  CHECK(messageOf("delay=1x") == "fault plan: 'delay=1x', expected a number from 0 to 100");
}

}  // namespace
}  // namespace sluice
