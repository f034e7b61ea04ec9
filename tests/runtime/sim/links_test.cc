#include "runtime/sim/links.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

constexpr SimTime kMicrosecond = 1'000'000;

TEST_CASE("a message that finds its ports free takes the latency and its bytes at the bandwidth, once") {
  Links links({.bandwidth = 1e9, .latency = 2e-6}, 2);
  const SimTime head = links.send(0, 1000, 5 * kMicrosecond);
  CHECK(head == 7 * kMicrosecond);
  CHECK(links.receive(1, 1000, head) == 8 * kMicrosecond);
}

TEST_CASE("messages of one rank leave one after the other, whoever receives them") {
  Links links({.bandwidth = 1e9, .latency = 0}, 3);
  CHECK(links.send(0, 1000, 0) == 0);
  CHECK(links.send(0, 3000, 0) == kMicrosecond);
  CHECK(links.send(0, 1000, 0) == 4 * kMicrosecond);
  CHECK(links.send(1, 1000, 0) == 0);  // another port
  CHECK(links.send(0, 1000, 9 * kMicrosecond) == 9 * kMicrosecond);
}

TEST_CASE("messages to one rank arrive one after the other, whoever sent them") {
  Links links({.bandwidth = 1e9, .latency = 0}, 3);
  CHECK(links.receive(2, 1000, 0) == kMicrosecond);
  CHECK(links.receive(2, 1000, 0) == 2 * kMicrosecond);
  CHECK(links.receive(1, 1000, 0) == kMicrosecond);  // another port
  CHECK(links.receive(2, 1000, 7 * kMicrosecond) == 8 * kMicrosecond);
}

TEST_CASE("a time beyond the longest is cut to it") {
  Links links({.bandwidth = 1e3, .latency = 0}, 2);
  for (int i = 0; i < 20000; ++i) CHECK_FALSE(links.receive(1, 1e15, links.send(0, 1e15, 0)) > kMaxSimTime);
}

}  // namespace
}  // namespace sluice
