#include "compiler/target/expect.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace sluice {
namespace {

using Catch::Matchers::Contains;

std::string fileWith(const std::string& content) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/shares.json";
  std::ofstream(path) << content;
  return path;
}

std::string errorOf(const std::string& text) {
  const Expected<Expectation> expectation = readExpectation(text);
  return expectation ? "read" : expectation.error().message;
}

TEST_CASE("uniform, zipf and a file are routings to expect") {
  CHECK(*readExpectation("uniform") == Expectation{});
  const Expected<Expectation> zipf = readExpectation("zipf:1.25");
  if (!zipf) FAIL(zipf.error().message);
  CHECK(zipf->exponent == 1.25);
  CHECK(zipf->name == "zipf:1.25");
  const Expected<Expectation> file = readExpectation(fileWith("[1, 2.5, 0]"));
  if (!file) FAIL(file.error().message);
  CHECK(file->shares == std::vector<double>{1, 2.5, 0});
}

TEST_CASE("what is no routing is refused with what was expected") {
  for (const char* text : {"zipf:", "zipf:x", "zipf:-1", "zipf:11", "zipf:1.2 ", "zipf:nan"}) {
    INFO(text);
    CHECK_THAT(errorOf(text), Contains("is not zipf:EXPONENT with a number from 0 to 10"));
  }
  CHECK_THAT(errorOf("zipfian"), Contains("neither uniform nor zipf:EXPONENT, nor a file"));
  CHECK_THAT(errorOf(fileWith("{}")), Contains("is not a JSON list of 1 to 65536 numbers"));
  CHECK_THAT(errorOf(fileWith("[]")), Contains("is not a JSON list"));
  CHECK_THAT(errorOf(fileWith("[1, -2]")), Contains("the share of expert 1 is not a number from 0"));
  CHECK_THAT(errorOf(fileWith("[1, \"2\"]")), Contains("the share of expert 1"));
  CHECK_THAT(errorOf(fileWith("[0, 0]")), Contains("all shares are 0"));
  CHECK_THAT(errorOf(fileWith(std::string(100000, '['))), Contains("is not a JSON list"));
}

}  // namespace
}  // namespace sluice
