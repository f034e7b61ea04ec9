#include <catch2/catch.hpp>
#include <cstdint>

#include "tests/gpu/chain_run.h"
#include "tests/gpu/pitch_case.h"

namespace sluice::gpu {
namespace {

TEST_CASE("rows 3 GB apart give the same bits as rows that follow each other") {
  for (uint64_t seed = 1; seed <= casesOf(20); ++seed) {
    CAPTURE(seed);
    CHECK(PitchCase(seed).run(1 + static_cast<int>(seed % 3), seed) == "");
  }
}

}  // namespace
}  // namespace sluice::gpu
