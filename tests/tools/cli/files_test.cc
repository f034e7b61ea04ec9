#include "tools/cli/files.h"

#include <catch2/catch.hpp>

namespace sluice::tools {
namespace {

TEST_CASE("every {rank} of a pattern becomes the number of the rank") {
  CHECK(*rankPaths("a/{rank}/in-{rank}", 2) == std::vector<std::string>{"a/0/in-0", "a/1/in-1"});
  CHECK(*rankPaths("plain", 1) == std::vector<std::string>{"plain"});
  CHECK(rankPaths("plain", 2).error().message ==
        "found no {rank} in 'plain', expected it in the files of a program of 2 ranks");
}

TEST_CASE("a list is cut at its commas") {
  CHECK(splitList("a,b") == std::vector<std::string>{"a", "b"});
  CHECK(splitList("a,,") == std::vector<std::string>{"a", "", ""});
  CHECK(splitList("") == std::vector<std::string>{""});
}

TEST_CASE("what is no text is refused where its first zero byte is, and not read to its end") {
  CHECK(readText("/dev/zero").error().message == "/dev/zero: found a zero byte at offset 0, expected text");
  CHECK(readText("/proc/self/cmdline").error().message.find("expected text") != std::string::npos);
}

}  // namespace
}  // namespace sluice::tools
