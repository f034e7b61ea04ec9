#include "tools/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace sluice::tools {
namespace {

// Standard error is a terminal while it exists. One at a time.
class TerminalError {
 public:
  TerminalError() : master_(::posix_openpt(O_RDWR | O_NOCTTY)), before_(::dup(STDERR_FILENO)) {
    REQUIRE((master_ >= 0 && ::grantpt(master_) == 0 && ::unlockpt(master_) == 0));
    const int terminal = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(terminal >= 0);
    ::dup2(terminal, STDERR_FILENO);
    ::close(terminal);
  }
  ~TerminalError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(master_);
  }
  TerminalError(const TerminalError&) = delete;
  TerminalError& operator=(const TerminalError&) = delete;

  // What was written since the last call.
  std::string read() {
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
    std::string text(4096, '\0');
    const ssize_t got = ::read(master_, text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

  // What is written next, however long it takes.
  std::string await() {
    for (;;) {
      std::string text = read();
      if (!text.empty()) return text;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  int master_, before_;
};

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

TEST_CASE("a first step that is long shows by itself, until it is hidden or ends") {
  TerminalError terminal;
  {
    const auto begin = std::chrono::steady_clock::now();
    Progress progress(Redraw::kByItself);
    CHECK(!progress.at(1, 3, "a long step"));
    CHECK(terminal.await() == "\r\033[K1 of 3: a long step");
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(2));
    progress.hide();
    CHECK(terminal.await() == "\r\033[K");
    progress.at(2, 3, "another");
    CHECK(terminal.await() == "\r\033[K2 of 3: another");
  }
  CHECK(terminal.read() == "\r\033[K");
}

TEST_CASE("without a thread only a step shows") {
  TerminalError terminal;
  Progress progress(Redraw::kAtSteps);
  progress.at(1, 2, "a");
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  CHECK(terminal.read().empty());
  CHECK(progress.at(2, 2, "b"));
  CHECK(terminal.read() == "\r\033[K2 of 2: b");
}

}  // namespace
}  // namespace sluice::tools
