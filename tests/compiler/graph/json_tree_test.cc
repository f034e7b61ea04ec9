#include "compiler/graph/json_tree.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

std::string treeError(std::string_view text) {
  const Expected<JsonValue> tree = parseJson(text, "f");
  return tree ? "no error" : tree.error().message;
}

TEST_CASE("every value knows where it begins") {
  const Expected<JsonValue> tree =
      parseJson("{\n  \"a\": [1, -2,\n3],\"b\" :{\"c\":true} , \"d\": \"x\\\"y\" }", "f");
  REQUIRE(tree.ok());
  CHECK(tree->pos == SourcePos{1, 1});
  REQUIRE(tree->items.size() == 3);
  const JsonValue& a = tree->items[0];
  CHECK(a.keyPos == SourcePos{2, 3});
  CHECK(a.pos == SourcePos{2, 8});
  REQUIRE(a.items.size() == 3);
  CHECK(a.items[0].pos == SourcePos{2, 9});
  CHECK(a.items[1].pos == SourcePos{2, 12});
  CHECK(a.items[1].integer == -2);
  CHECK(a.items[2].pos == SourcePos{3, 1});
  const JsonValue& b = tree->items[1];
  CHECK(b.keyPos == SourcePos{3, 4});
  CHECK(b.pos == SourcePos{3, 9});
  CHECK(b.items.at(0).keyPos == SourcePos{3, 10});
  CHECK(b.items.at(0).pos == SourcePos{3, 14});
  const JsonValue& d = tree->items[2];
  CHECK(d.keyPos == SourcePos{3, 22});
  CHECK(d.pos == SourcePos{3, 27});
  CHECK(d.text == "x\"y");
}

TEST_CASE("positions do not depend on what stands behind a number") {
  for (const char* text : {"[[1],[2]]", "[[1 ],[2]]", "[[1\t],[2 ]]"}) {
    const Expected<JsonValue> tree = parseJson(text, "f");
    REQUIRE(tree.ok());
    const int32_t column = static_cast<int32_t>(std::string_view(text).find('2')) + 1;
    CHECK(tree->items.at(1).items.at(0).pos == SourcePos{1, column});
    CHECK(tree->items.at(1).pos == SourcePos{1, column - 1});
  }
}

TEST_CASE("a byte order mark is no part of the first value") {
  const Expected<JsonValue> tree = parseJson("\xEF\xBB\xBF\n{}", "f");
  REQUIRE(tree.ok());
  CHECK(tree->pos == SourcePos{2, 1});
}

TEST_CASE("kinds of values are told apart") {
  const Expected<JsonValue> tree = parseJson(R"([null, false, 1, 1.5, "s", [], {}])", "f");
  REQUIRE(tree.ok());
  for (size_t i = 0; i < tree->items.size(); ++i) CHECK(tree->items[i].kind == static_cast<JsonKind>(i));
}

TEST_CASE("syntax errors name the place where the parser stopped") {
  CHECK(treeError("").starts_with("f:1:1: error: "));
  CHECK(treeError("{\n  \"a\": 1,\n}").starts_with("f:3:1: error: "));
  CHECK(treeError("[1, 2").starts_with("f:1:6: error: "));
  CHECK(treeError("[1] x").starts_with("f:1:5: error: "));
  CHECK(treeError("[\"\x01\"]").starts_with("f:1:3: error: "));
  CHECK(treeError("[\"\xff\"]").starts_with("f:1:3: error: "));
  CHECK(treeError("[1e999]").find("error: number overflow parsing '1e999'") != std::string::npos);
}

TEST_CASE("messages are one line of plain characters") {
  const std::string message = treeError("[\"\n\xff\x80\"]");
  CHECK(message.find_first_of("\n\xff\x80") == std::string::npos);
}

TEST_CASE("a field given twice is an error at the second") {
  CHECK(treeError("{\"a\": 1,\n \"a\": 2}") == "f:2:2: error: field 'a' is given twice, first in line 1");
}

TEST_CASE("numbers outside of 64 bits are errors") {
  CHECK(treeError("[9223372036854775808]") == "f:1:2: error: number 9223372036854775808 is out of range");
  CHECK(treeError("[9223372036854775807, -9223372036854775808]") == "no error");
}

TEST_CASE("deep nesting and huge objects are errors, not crashes") {
  CHECK(treeError(std::string(100000, '[')) == "f:1:17: error: nested deeper than 16");
  std::string object = "{";
  for (size_t i = 0; i <= kMaxJsonFields; ++i) object += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  CHECK(treeError(object + "}").find("object has more than 1024 fields") != std::string::npos);
}

}  // namespace
}  // namespace sluice
