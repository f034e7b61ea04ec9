#include "tools/command_line.h"

#include <catch2/catch.hpp>
#include <vector>

namespace sluice::tools {
namespace {

std::string findEmpty(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tool");
  return findEmptyArgument(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("an empty value is named by its option, and an empty argument by its number") {
  CHECK(findEmpty({"run", "p", "--in", "", "--out", "x"}) == "--in: its value is empty");
  CHECK(findEmpty({"run", "p", "--in="}) == "--in: its value is empty");
  CHECK(findEmpty({"g", "-o", ""}) == "-o: its value is empty");
  CHECK(findEmpty({"g", "--trainable", ",,"}) == "--trainable: its value is empty");
  CHECK(findEmpty({"g", "--trainable=,"}) == "--trainable: its value is empty");
  CHECK(findEmpty({"", "x"}) == "argument 1 is empty");
  CHECK(findEmpty({"verify", ""}) == "argument 2 is empty");
  CHECK(findEmpty({"--a=b", ""}) == "argument 2 is empty");
}

TEST_CASE("what has a value is left alone") {
  CHECK(findEmpty({}).empty());
  CHECK(findEmpty({"run", "-", "--in", "a,b", "--set", "ep=", "--in=a=", "x=", " ", "--time"}).empty());
}

TEST_CASE("control characters and bytes that are no UTF-8 are shown by their numbers, and text as it is") {
  CHECK(printable("a\tb\nc") == "a\tb\nc");
  CHECK(printable("\x1b[2J\r\x07\x7f") == "\\x1b[2J\\x0d\\x07\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\xc2\\x9b2J");  // CSI of terminals that take C1
  CHECK(printable("\x9b\xff") == "\\x9b\\xff");
  CHECK(printable("\xc0\x9b\xed\xa0\x80\xe2\x82") == "\\xc0\\x9b\\xed\\xa0\\x80\\xe2\\x82");
}

}  // namespace
}  // namespace sluice::tools
