#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/gpu/gated_case.h"
#include "tests/gpu/run_on_model.h"

namespace sluice::gpu {
namespace {

constexpr uint64_t kCases = casesOf(60);

TEST_CASE("products with an activation, and their gradients, are right for ragged rows and odd sizes") {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    CAPTURE(seed);
    CHECK(runOnModel(GatedCase(seed), 1 + static_cast<int>(seed % 3), seed) == "");
  }
}

TEST_CASE("with activations, 1, 2 and 3 blocks give the same bits, whatever the order") {
  for (uint64_t seed = 101; seed <= 104; ++seed) {
    CAPTURE(seed);
    GatedCase it(seed);
    REQUIRE(runOnModel(it, 1, seed) == "");
    const std::vector<uint16_t> results = it.results();
    for (const int blocks : {2, 3}) {
      REQUIRE(runOnModel(it, blocks, seed + 1) == "");
      CHECK(it.results() == results);
    }
  }
}

}  // namespace
}  // namespace sluice::gpu
