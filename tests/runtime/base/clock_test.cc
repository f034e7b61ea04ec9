#include "runtime/base/clock.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000'000;

TEST_CASE("a time limit is any number of seconds above 0, infinity included") {
  for (const double seconds : {1e-300, 1e-9, 0.5, 30.0, 9.2e9, 1e18, 1e300, kInfinity})
    CHECK(checkTimeLimit(seconds).ok());
  for (const double seconds : {0.0, -0.0, -1e-300, -1.0, -1e300, -kInfinity, std::nan("")}) {
    CHECK_FALSE(checkTimeLimit(seconds).ok());
    CHECK(limitNanoseconds(seconds) == 0);
  }
  CHECK(checkTimeLimit(-2).error().message == "a time limit of -2 s, expected more than 0");
}

TEST_CASE("a limit that no clock has is a century, to which the time of the clock can be added") {
  CHECK(limitNanoseconds(1e-9) == 1);
  CHECK(limitNanoseconds(0.5) == 500'000'000);
  CHECK(limitNanoseconds(1e8) == int64_t{100'000'000} * 1'000'000'000);
  int64_t last = 0;
  for (double seconds = 1; seconds < 1e30; seconds *= 3) {
    const int64_t limit = limitNanoseconds(seconds);
    CHECK(limit >= last);
    CHECK(limit <= std::numeric_limits<int64_t>::max() - 100 * kYear);
    last = limit;
  }
  for (const double seconds : {4.6e9, 4.7e9, 9.2e9, 9.3e9, 1.8e10, 1e19, 1e300, kInfinity})
    CHECK(limitNanoseconds(seconds) > 100 * kYear);
}

}  // namespace
}  // namespace sluice
