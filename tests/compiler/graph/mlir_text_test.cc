#include "compiler/graph/mlir_text.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace sluice {
namespace {

std::string repeat(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string messageOf(const std::string& text, const std::string& marker = {}) {
  const Status status = checkMlirText(text, "a.mlir", marker);
  return status ? std::string() : status.error().message;
}

bool isTooDeep(const std::string& text) {
  const std::string message = messageOf(text);
  return message.find("error: nested deeper than 64") != message.npos ||
         message.find("error: an expression of more than 64 operators") != message.npos;
}

// Every way in which MLIR's text nests: the text that opens a level, and the text that closes it.
struct Nesting {
  const char* what;
  std::string begin, open, middle, close, end;
};

std::vector<Nesting> nestings() {
  return {
      {"lists", "#a = ", "[", "1", "]", ""},
      {"dictionaries", "#a = ", "{a = ", "1", "}", ""},
      {"tuples", "!a = ", "tuple<", "i32", ">", ""},
      {"functions", "!a = ", "(", "i32", ") -> ()", ""},
      {"results of functions", "!a = ", "() -> (", "i32", ")", ""},
      {"element types", "!a = ", "tensor<4x", "f32", ">", ""},
      {"complex numbers", "!a = ", "complex<", "f32", ">", ""},
      {"vectors and memory", "!a = ", "memref<4xvector<4x", "f32", ">>", ""},
      {"dense elements", "#a = dense<", "[", "1", "]", "> : tensor<1xi32>"},
      {"regions", "", "\"a.b\"() ({\n", "", "}) : () -> ()\n", ""},
      {"modules", "", "module {\n", "", "}\n", ""},
      {"named locations", "#a = loc(", "\"a\"(", "unknown", ")", ")"},
      {"calls", "#a = loc(", "callsite(\"a\" at ", "\"b\"", ")", ")"},
      {"fused locations", "#a = loc(", "fused[", "unknown", "]", ")"},
      {"attributes of a dialect", "#a = ", "#moe.split<", "rows", ">", ""},
      {"types of a dialect", "!a = ", "!moe.routing<", "1", ">", ""},
      {"opaque attributes", "#a = ", "#a<\"x\" (", "1", ")>", ""},
      {"distinct attributes", "#a = ", "distinct[0]<", "42", ">", ""},
      {"parentheses of maps", "#a = affine_map<(d0) -> (", "(", "d0", ")", ")>"},
      {"negations", "#a = affine_map<(d0) -> (", "-", "d0", "", ")>"},
      {"negations apart", "#a = affine_map<(d0) -> (", "- // -\n ", "d0", "", ")>"},
      {"sums", "#a = affine_map<(d0) -> (", "d0 + ", "d0", "", ")>"},
      {"products", "#a = affine_map<(d0) -> (d0", " * 2", "", "", ")>"},
      {"remainders", "#a = affine_map<(d0) -> (d0", " mod 7", "", "", ")>"},
      {"quotients", "#a = affine_map<(d0) -> (d0", " floordiv 7 ceildiv 3", "", "", ")>"},
      {"sums in parentheses", "#a = affine_map<(d0) -> (", "(d0 + d0) + ", "d0", "", ")>"},
      {"differences in sets", "#a = affine_set<(d0) : (", "d0 - ", "d0", "", " >= 0)>"},
      {"metadata of a file", "{-# a : ", "{b : ", "1", "}", " #-}"},
  };
}

TEST_CASE("every way to nest is refused when it is too deep, and taken when it is not") {
  for (const Nesting& n : nestings()) {
    INFO(n.what);
    const auto text = [&](int depth) {
      return n.begin + repeat(n.open, depth) + n.middle + repeat(n.close, depth) + n.end;
    };
    CHECK(messageOf(text(20)).empty());
    for (int depth : {66, 1000, 100000}) CHECK(isTooDeep(text(depth)));
    // Likewise if nothing closes, which gives the deepest nesting in a short file.
    CHECK(isTooDeep(n.begin + repeat(n.open, 100000)));
  }
}

TEST_CASE("aliases nest without brackets") {
  for (const std::string prefix : {"#", "!"}) {
    for (const std::string open : {"[", "tuple<", ""}) {
      std::string text = prefix + "a0 = i32\n";
      for (int i = 1; i <= 200; ++i)
        text += prefix + "a" + std::to_string(i) + "\n=\n" + open + prefix + "a" + std::to_string(i - 1) +
                (open.empty()  ? "\n"
                 : open == "[" ? "]\n"
                               : ">\n");
      CHECK(isTooDeep(text));
    }
  }
  // Consecutive aliases, and one that is used often, are not deep.
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "#a" + std::to_string(i) + " = loc(\"x\":1:" + std::to_string(i) + ")\n";
  for (int i = 0; i < 200; ++i) text += "\"a.b\"() {c = [#a" + std::to_string(i) + "]} : () -> () loc(#a7)\n";
  CHECK(messageOf(text).empty());
}

TEST_CASE("brackets and signs that do not nest are not counted") {
  CHECK(messageOf(repeat("\"((((\" // [[[[\n", 100)).empty());
  CHECK(messageOf(repeat("\"\\\"((\\\\\" @\"<<\" ", 100)).empty());
  CHECK(messageOf(repeat("() -> () \n", 1000)).empty());
  CHECK(messageOf(repeat("#a = affine_set<(d0) : (d0 >= 0, d0 <= 3)>\n", 1000)).empty());
  CHECK(messageOf("[" + repeat("-1, ", 10000) + "-1]").empty());
  CHECK(messageOf(repeat("\"a.b\"() {c = -1 : i32, d = 1.0e-3} : () -> ()\n", 10000)).empty());
  CHECK(messageOf(repeat("%a-b = @c-d ^e-f #g-h\n", 1000)).empty());
}

TEST_CASE("a bracket of another kind does not make a text less deep") {
  CHECK(isTooDeep(repeat("(>", 1000)));
  CHECK(isTooDeep(repeat("[)", 1000)));
  CHECK(isTooDeep(repeat("<=<>=", 1000)));
  CHECK(isTooDeep("\"not closed\n" + repeat("(", 1000)));
}

TEST_CASE("the place of an error is that of its bracket") {
  CHECK(messageOf("\n  " + repeat("(", 65)) == "a.mlir:2:67: error: nested deeper than 64");
  CHECK(messageOf("// -----\n" + repeat("(", 65), "// -----") == "a.mlir:2:65: error: nested deeper than 64");
}

TEST_CASE("parts of a file stand alone where MLIR cuts it, and nowhere else") {
  const std::string marker = "// -----", half = repeat("(", 40);
  CHECK(messageOf(half + "\n// -----\n" + half, marker).empty());
  CHECK(isTooDeep(half + "\n// -----\n" + half));
  CHECK(messageOf(half + "\n// -----0\n" + half, marker) != "");
  CHECK(messageOf(half + "\n// ----\n" + half, marker) != "");
  CHECK(messageOf("\"" + marker + repeat("(", 1000), marker) != "");  // cut inside of a string
}

TEST_CASE("bytecode is refused, and so is what must not reach a terminal") {
  CHECK(messageOf("ML\xefR\x06MLIR19\0") == "a.mlir:1:1: error: found MLIR bytecode, expected text");
  CHECK(messageOf("module {\n \x1b[2J}") == "a.mlir:2:2: error: found control character 0x1b");
  CHECK(messageOf("// \x7f") == "a.mlir:1:4: error: found control character 0x7f");
  CHECK(messageOf(std::string("a\0b", 3)) == "a.mlir:1:2: error: found control character 0x00");
  CHECK(messageOf("// \xc2\x9b") == "a.mlir:1:4: error: found control character 0x9b");
  CHECK(messageOf("\"\xff\"") == "a.mlir:1:2: error: found byte 0xff, expected UTF-8");
  CHECK(messageOf(" \"a\\1Bb\"") == "a.mlir:1:2: error: found control character 0x1b in a string");
  CHECK(messageOf("\"\\FF\"") == "a.mlir:1:1: error: found byte 0xff, expected UTF-8 in a string");
  CHECK(messageOf("\"\\C3\\BC \\n \\t \\\\1B \xc3\xbc\"\t\r\n").empty());
}

}  // namespace
}  // namespace sluice
