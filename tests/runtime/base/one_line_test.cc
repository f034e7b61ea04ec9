#include "runtime/base/one_line.h"

#include <catch2/catch.hpp>
#include <string>

namespace sluice {
namespace {

TEST_CASE("text in any script stays as it is") {
  for (const char* text : {"", "rows_x", "Zeilen \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "a\\b 'c'"}) {
    CHECK(oneLine(text) == text);
    CHECK(isOneLine(text));
  }
}

TEST_CASE("bytes that control a terminal or are no UTF-8 are shown by their numbers") {
  CHECK(oneLine("\x1b[2J") == "\\x1b[2J");
  CHECK(oneLine("a\nb\r\tc") == "a\\x0ab\\x0d\\x09c");
  CHECK(oneLine(std::string("\0", 1)) == "\\x00");
  CHECK(oneLine("\x7f") == "\\x7f");
  CHECK(oneLine("\xc2\x9b") == "\\xc2\\x9b");
  CHECK(oneLine("\xff\xe2\x82") == "\\xff\\xe2\\x82");
  CHECK_FALSE(isOneLine("\n"));
}

TEST_CASE("a list in a message keeps its lines, a name cannot begin one") {
  CHECK(messageLines("the symbols are:\n  ep = 4\n  k = 2") == "the symbols are:\n  ep = 4\n  k = 2");
  CHECK(messageLines("name 'a\nerror: b'") == "name 'a\\x0aerror: b'");
  CHECK(messageLines("a\n  \x1b") == "a\n  \\x1b");
}

}  // namespace
}  // namespace sluice
