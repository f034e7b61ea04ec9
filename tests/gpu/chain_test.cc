#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/gpu/chain_case.h"
#include "tests/gpu/run_on_model.h"

namespace sluice::gpu {
namespace {

constexpr uint64_t kCases = casesOf(50);

TEST_CASE("chained products are right for ragged rows and sizes that are no multiple of a tile") {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    CAPTURE(seed);
    CHECK(runOnModel(ChainCase(seed), 3, seed) == "");
  }
}

TEST_CASE("1, 2 and 3 blocks give the same bits, whatever the order") {
  for (uint64_t seed = 101; seed <= 104; ++seed) {
    CAPTURE(seed);
    ChainCase it(seed);
    REQUIRE(runOnModel(it, 1, seed) == "");
    const std::vector<uint16_t> hidden = it.hidden();
    const std::vector<uint16_t> result = it.result();
    for (const int blocks : {2, 3}) {
      REQUIRE(runOnModel(it, blocks, seed + 1) == "");
      CHECK(it.hidden() == hidden);
      CHECK(it.result() == result);
    }
  }
}

TEST_CASE("a lost signal ends in a report of who waited for it") {
  for (const int blocks : {1, 3}) {
    for (uint64_t seed = 201; seed <= 203; ++seed) {
      CAPTURE(seed, blocks);
      ChainCase it(seed);
      const uint32_t event = it.loseSignal();
      const std::string wrong = runOnModel(it, blocks, seed);
      CAPTURE(wrong);
      bool isReported = false;
      for (const StuckReport& each : it.reports())
        if (each.stuck == Stuck::kEvent) isReported |= each.event == event && each.have < each.need;
      CHECK(wrong.starts_with("the kernel: core"));
      CHECK(isReported);
    }
  }
}

}  // namespace
}  // namespace sluice::gpu
