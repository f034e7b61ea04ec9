#include "compiler/report/numbers.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

TEST_CASE("formulas name what they are multiples of") {
  CHECK(formulaText({}) == "0");
  CHECK(formulaText({7, 12, 4096, 2}) == "4096 R + 2 P + 12 T + 7");
  CHECK(formulaText({0, 0, 0, 3}) == "3 P");
}

TEST_CASE("bytes and operations have units") {
  CHECK(bytesText(0) == "0 B");
  CHECK(bytesText(1023) == "1023 B");
  CHECK(bytesText(1536) == "1.50 KiB");
  CHECK(bytesText(3.0 * 1024 * 1024 * 1024) == "3.00 GiB");
  CHECK(flopsText(999) == "999 FLOP");
  CHECK(flopsText(2.4e12) == "2.40 TFLOP");
}

}  // namespace
}  // namespace sluice
