#include "tools/progress.h"

#include <catch2/catch.hpp>

namespace sluice::tools {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kColumns = 40;

TEST_CASE("nothing is shown in the first two seconds, and then nothing need be removed") {
  ProgressLine line(5 * kSecond, kColumns);
  line.set("1 of 2: a");
  CHECK(line.draw(5 * kSecond).empty());
  CHECK(line.draw(7 * kSecond - 1).empty());
  CHECK(line.clear().empty());
  line.set("1 of 2: a");
  CHECK(line.draw(7 * kSecond) == "\r\033[K1 of 2: a");
}

TEST_CASE("the line changes at most five times per second, and only if its text does") {
  ProgressLine line(0, kColumns);
  int drawn = 0;
  for (int64_t milliseconds = 2000; milliseconds < 3000; ++milliseconds) {
    line.set("step " + std::to_string(milliseconds));
    drawn += line.draw(milliseconds * 1'000'000).empty() ? 0 : 1;
  }
  CHECK(drawn == 5);
  line.set("last");
  CHECK(line.draw(4 * kSecond) == "\r\033[Klast");
  CHECK(line.draw(5 * kSecond).empty());
}

TEST_CASE("a line that was removed comes back with the next step only") {
  ProgressLine line(0, kColumns);
  line.set("a");
  CHECK(!line.draw(3 * kSecond).empty());
  CHECK(line.clear() == "\r\033[K");
  CHECK(line.clear().empty());
  CHECK(line.draw(4 * kSecond).empty());
  line.set("a");
  CHECK(line.draw(5 * kSecond) == "\r\033[Ka");
}

TEST_CASE("text neither wraps, nor moves the cursor, nor ends within a character") {
  ProgressLine line(0, 8);
  line.set("a\n\x1b[2J");
  CHECK(line.draw(3 * kSecond) == "\r\033[Ka \\x1b[");
  line.set("123456\xc3\xa9x");
  CHECK(line.draw(4 * kSecond) == "\r\033[K123456");
}

}  // namespace
}  // namespace sluice::tools
