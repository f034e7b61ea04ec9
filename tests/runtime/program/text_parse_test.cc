#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <random>

#include "runtime/program/text.h"
#include "runtime/program/text_lexer.h"
#include "tests/runtime/program/random_program.h"

namespace sluice {
namespace {

std::string parseError(std::string_view text) {
  const Expected<TaskProgram> program = parseProgram(text, "f.txt");
  return program.ok() ? "" : program.error().message;
}

TEST_CASE("an error says where, what was found and what was expected") {
  CHECK(parseError("") == "f.txt:1:1: found the end of the text, expected 'program'");
  CHECK(parseError("SLUP") == "f.txt:1:1: found 'SLUP', expected 'program'");
  CHECK(parseError("program p\nlimit ranks 1") ==
        "f.txt:2:1: found 'limit', expected a statement: target, options, graph, symbol, limits, region, "
        "buffer, "
        "entry, space, event, family or lane");
  CHECK(parseError("program p\n  buffer x : BF17 [T]") ==
        "f.txt:2:14: found 'BF17', expected a type: one of F32, BF16, F16, I32, I64, I8, "
        "U8, F8_E4M3, F8_E8M0");
  CHECK(parseError("program p\nsymbol a = 99999999999999999999") ==
        "f.txt:2:12: found '99999999999999999999', expected a number of 64 bits");
  CHECK(parseError("program p\nspace s : rows of 3x window 1") ==
        "f.txt:2:19: found '3x', expected the size of a slot of 32 bits");
  const std::string family = "program p family none/f : gmm over none tiles 1 on cube tiling ";
  CHECK(parseError(family + "alpha=1e99") ==
        "f.txt:1:70: found '1e99', expected a number that a float can hold");
  CHECK(parseError(family + "alpha=x") == "f.txt:1:70: found 'x', expected a number that a float can hold");
  CHECK(parseError(family + "n=1.5") == "f.txt:1:66: found '1.5', expected a number of 32 bits");
  CHECK(parseError("program \"p") ==
        "f.txt:1:9: found a string without its closing quote, expected the name of the "
        "program");
  CHECK(parseError("program \"\\q\"") ==
        "f.txt:1:9: found an unknown escape in a string, expected the name of the program");
  CHECK(parseError("program \x01") == "f.txt:1:9: found byte 0x01, expected the name of the program");
}

TEST_CASE("a reference to what is not declared above, or not unique, is refused") {
  CHECK(parseError("program p buffer x : F32 [T] temp in r") ==
        "f.txt:1:38: found 'r', expected a region declared above");
  CHECK(parseError("program p region r : 1 bytes region r : 2 bytes buffer x : F32 [T] temp in r") ==
        "f.txt:1:76: 'r' is not unique, expected '#' and the index of a region");
  // An event of another entry has no name here.
  CHECK(parseError("program p entry a entry b event a/e : [one] counts tasks to constant(1)\n"
                   "family b/f : gmm over none tiles 1 on cube waits e") ==
        "f.txt:2:50: found 'e', expected an event of the entry declared above");
}

TEST_CASE("a lane cannot be dealt what the program does not declare, nor any number of tasks") {
  const std::string family =
      "program p space s : rows of 16 window 65536 family none/f : gmm over s tiles 65536 on cube\n";
  const std::string lane = "lane none/f over s on cube priority 0 rotation 0 dealt ";
  CHECK(parseError(family + lane + "f to 2 seats") ==
        "f.txt:2:56: lane 'f' deals 65536 slots x 65536 tiles to 2 seats, expected at most 262144 tasks and "
        "seats in all lanes together");
  CHECK(parseError(family + lane + "#1 to 2 seats") ==
        "f.txt:2:56: lane 'f' deals tasks of family 1, but the program declares 1 families");
  CHECK(parseError(family + lane + "f to 0 seats") ==
        "f.txt:2:56: lane 'f' deals 65536 slots x 65536 tiles to 0 seats, expected at least 1 of each");
}

TEST_CASE("seats are numbered from 0 without a gap") {
  CHECK(parseError("program p lane none/l over none on unified priority 0 rotation 0 seat 1:") ==
        "f.txt:1:71: found seat 1, expected seat 0");
}

TEST_CASE("comments and line breaks do not matter") {
  const Expected<TaskProgram> program = parseProgram(
      "// a comment\nprogram\np//more\nregion r:R*64 bytes\r\nbuffer x:F32[R ,16]temp in r// end", "f.txt");
  REQUIRE((program.ok() ? "" : program.error().message) == "");
  CHECK(program->name == "p");
  CHECK(program->buffers.at(0).shape.at(1).size == 16);
  CHECK(program->buffers.at(0).region == RegionId{0});
}

TEST_CASE("the example of the documentation parses, and prints as it stands there") {
  std::ifstream file("docs/PROGRAM.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t begin = page.find("```\nprogram ") + 4;
  REQUIRE(begin > 4);
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  const Expected<TaskProgram> program = parseProgram(example, "docs/PROGRAM.md");
  REQUIRE((program.ok() ? "" : program.error().message) == "");
  CHECK(printProgram(*program) == example);
}

TEST_CASE("damaged text never crashes the parser") {
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text =
        printProgram(round % 2 ? smallProgram() : randomProgram(static_cast<uint32_t>(round) % 50));
    if (round % 3 == 0) text.resize(random() % text.size());
    for (uint32_t n = random() % 4; n > 0 && !text.empty(); --n) {
      static constexpr std::string_view kBytes = "[]{}(),:/=*#\"\\ \n09-xae";
      const size_t at = random() % text.size();
      if (random() % 2)
        text[at] = kBytes[random() % kBytes.size()];
      else
        text.erase(at, random() % 8);
    }
    const Expected<TaskProgram> program = parseProgram(text, "t");
    if (!program.ok()) {
      REQUIRE(program.error().message.starts_with("t:"));
      continue;
    }
    ++accepted;
    REQUIRE(*parseProgram(printProgram(*program), "t") == *program);
  }
  CHECK(accepted > 100);
}

TEST_CASE("tokens know their line and column") {
  text::Lexer lexer("a \"b\\x41\\n\"\n  -12 #");
  CHECK(lexer.next().value == "a");
  const text::Token string = lexer.next();
  CHECK(string.value == "bA\n");
  CHECK(string.column == 3);
  const text::Token number = lexer.next();
  CHECK(number.text == "-12");
  CHECK(number.line == 2);
  CHECK(number.column == 3);
  CHECK(lexer.next().isMark('#'));
  CHECK(lexer.next().kind == text::Token::Kind::kEnd);
}

}  // namespace
}  // namespace sluice
