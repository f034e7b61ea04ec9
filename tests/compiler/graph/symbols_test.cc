#include "compiler/graph/symbols.h"

#include <array>
#include <catch2/catch.hpp>

namespace sluice {
namespace {

using Set = std::pair<std::string, int64_t>;

std::array<GraphSymbol, 2> symbols() {
  return {GraphSymbol{.name = "ep", .value = 4, .initial = 4, .min = 1, .max = 16, .doc = "ranks"},
          GraphSymbol{.name = "experts", .value = 64, .initial = 64, .min = 1, .max = 256, .doc = ""}};
}

int64_t valueOf(std::string_view text) {
  const Expected<int64_t> value = evaluateSize(text, symbols());
  return value ? *value : -1;
}

std::string symbolError(std::string_view text) {
  const Expected<int64_t> value = evaluateSize(text, symbols());
  return value ? "no error" : value.error().message;
}

TEST_CASE("sizes are numbers, symbols, sums, products and exact quotients") {
  CHECK(valueOf("12") == 12);
  CHECK(valueOf("experts") == 64);
  CHECK(valueOf("experts/ep") == 16);
  CHECK(valueOf(" 2 * experts / ep * 3 ") == 96);
  CHECK(valueOf("experts + 2*ep + 1") == 73);
}

TEST_CASE("sizes that are none say why") {
  CHECK(symbolError("") == "a number or symbol is missing");
  CHECK(symbolError("2*") == "a number or symbol is missing");
  CHECK(symbolError("/2") == "a number or symbol is missing");
  CHECK(symbolError("12a") == "'12a' is not a whole number in range");
  CHECK(symbolError("99999999999999999999") == "'99999999999999999999' is not a whole number in range");
  CHECK(symbolError("experts/0") == "division by 0");
  CHECK(symbolError("experts/7") == "64 is not divisible by 7");
  CHECK(symbolError("9223372036854775807*2") == "the product is out of range");
  CHECK(symbolError("9223372036854775807 + 1") == "the sum is out of range");
  CHECK(symbolError("2+") == "a number or symbol is missing");
  CHECK(symbolError("2-2") == "'2-2' is not a whole number in range");
  CHECK(symbolError("k") ==
        "unknown symbol 'k', the symbols are:\n  ep = 4 (1 to 16): ranks\n  experts = 64 (1 to 256)");
}

TEST_CASE("the last of several settings counts") {
  auto table = symbols();
  REQUIRE(setSymbols(table, {std::array{Set("ep", 2), Set("experts", 10), Set("ep", 8)}}).ok());
  CHECK(table[0].value == 8);
  CHECK(table[1].value == 10);
  CHECK(table[0].initial == 4);
}

TEST_CASE("setting an unknown symbol or a value out of range lists the symbols") {
  auto table = symbols();
  const std::string list = "the symbols are:\n  ep = 4 (1 to 16): ranks\n  experts = 64 (1 to 256)";
  CHECK(setSymbols(table, {std::array{Set("ranks", 2)}}).error().message ==
        "unknown symbol 'ranks', " + list);
  CHECK(setSymbols(table, {std::array{Set("ep", 17)}}).error().message ==
        "symbol 'ep' is set to 17, expected 1 to 16; " + list);
  CHECK(setSymbols(table, {std::array{Set("ep", 0)}}).error().message ==
        "symbol 'ep' is set to 0, expected 1 to 16; " + list);
}

}  // namespace
}  // namespace sluice
