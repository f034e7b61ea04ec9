#include "tools/bench/link_probe.h"

#include <catch2/catch.hpp>

#include "runtime/api/context.h"

namespace sluice::tools {
namespace {

void check(const Expected<LinkFigures>& figures) {
  INFO((figures ? "" : figures.error().message));
  REQUIRE(figures.ok());
  size_t bytes = 1 << 10;
  for (const PutRate& rate : figures->rates) {
    CHECK(rate.bytes == bytes);
    CHECK(rate.put > 0);
    CHECK(rate.copy > 0);
    CHECK(rate.known > 0);
    bytes *= 4;
  }
  CHECK(figures->leastSpinning > 0);
  CHECK(figures->leastSpinning <= figures->spinning);
  CHECK(figures->leastParked > 0);
  CHECK(figures->leastParked <= figures->parked);
  CHECK(formatText(*figures).find("a signal takes") != std::string::npos);
}

// Processes first: they are forked, and this process must not have threads.
TEST_CASE("a link between two processes, and between two threads, has every figure") {
  check(probeProcesses());
  check(probeThreads());
}

TEST_CASE("a link is between two ranks") {
  LocalRanks local(1);
  const auto figures = probeLink(local.transport(0));
  REQUIRE_FALSE(figures.ok());
  CHECK(figures.error().message == "a link is between 2 ranks, found 1");
}

}  // namespace
}  // namespace sluice::tools
