#include "ops/bench/probes.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace sluice::ops {
namespace {

constexpr size_t kLine = 64;

struct Line {
  alignas(kLine) std::byte bytes[kLine] = {};
};

std::span<std::byte> bytesOf(std::vector<Line>& lines) { return {lines[0].bytes, lines.size() * kLine}; }

TEST_CASE("a read probe reads every word of every line once") {
  for (size_t count : {1, 3, 4, 7, 64}) {
    std::vector<Line> lines(count);
    uint64_t want = 0;
    for (size_t i = 0; i < count * 8; ++i) {
      const uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
      std::memcpy(bytesOf(lines).data() + i * 8, &word, 8);
      want ^= word;
    }
    CHECK(readMemory(bytesOf(lines)) == want);
  }
}

TEST_CASE("a write probe writes every whole line and nothing behind it") {
  std::vector<Line> lines(7);
  const std::span<std::byte> memory = bytesOf(lines);
  streamMemory(memory.first(5 * kLine + 60), 0x0102030405060708);
  for (size_t i = 0; i < memory.size(); ++i)
    REQUIRE(memory[i] == (i < 5 * kLine ? std::byte(8 - i % 8) : std::byte{0}));
}

TEST_CASE("a bandwidth probe covers its memory, and its rates are in order") {
  std::vector<Line> lines(300);
  const Bandwidth written = streamBandwidth(bytesOf(lines), 4);
  CHECK(written.best >= written.median);
  CHECK(written.median > 0);
  for (const Line& line : lines) REQUIRE(line.bytes[5] != std::byte{0});
  const Bandwidth read = readBandwidth(bytesOf(lines), 3);
  CHECK(read.best >= read.median);
  CHECK(read.median > 0);
}

}  // namespace
}  // namespace sluice::ops
