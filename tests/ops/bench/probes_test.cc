#include "ops/bench/probes.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace sluice::ops {
namespace {

TEST_CASE("a read probe reads every word of every line once") {
  for (size_t count : {1, 3, 4, 7, 64}) {
    std::vector<CacheLine> lines(count);
    uint64_t want = 0;
    for (size_t i = 0; i < count * 8; ++i) {
      const uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
      std::memcpy(lines[i / 8].bytes + i % 8 * 8, &word, 8);
      want ^= word;
    }
    CHECK(readMemory(lines) == want);
  }
}

TEST_CASE("a write probe writes every line and nothing behind it") {
  for (size_t count : {1, 5, 300}) {
    std::vector<CacheLine> lines(count + 2);
    streamMemory(std::span(lines).first(count), 0x0102030405060708);
    for (size_t i = 0; i < lines.size() * 64; ++i)
      REQUIRE(lines[i / 64].bytes[i % 64] == (i < count * 64 ? std::byte(8 - i % 8) : std::byte{0}));
  }
}

}  // namespace
}  // namespace sluice::ops
