#include "runtime/base/dtype.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

namespace sluice {
namespace {

TEST_CASE("an element of any type is stored in its own bytes, and is the number that was stored") {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    INFO(dtypeName(type));
    unsigned char data[24], untouched[24];
    std::memset(data, 0xa5, sizeof data);
    std::memset(untouched, 0xa5, sizeof untouched);
    setElement(type, data, 1, -3);
    const auto bytes = static_cast<size_t>(dtypeBytes(type));
    CHECK(std::memcmp(data, untouched, bytes) == 0);
    CHECK(std::memcmp(data + bytes, untouched, bytes) != 0);
    CHECK(std::memcmp(data + 2 * bytes, untouched, sizeof data - 2 * bytes) == 0);
    CHECK(elementAt(type, data, 1) == -3);
  }
}

TEST_CASE("every F16 is read as its number, and a number becomes the nearest one") {
  for (uint32_t bits = 0; bits < 0x8000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const int exponent = static_cast<int>(bits >> 10), fraction = static_cast<int>(bits & 0x3ff);
    const double number =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    INFO(bits);
    if (exponent == 31) {
      REQUIRE((fraction == 0 ? std::isinf(fromF16(half)) : std::isnan(fromF16(half))));
      REQUIRE((fraction == 0 ? toF16(fromF16(half)) == half : std::isnan(fromF16(toF16(fromF16(half))))));
      continue;
    }
    REQUIRE(fromF16(half) == number);
    REQUIRE(fromF16(half | 0x8000) == -number);
    REQUIRE(toF16(fromF16(half)) == half);
    REQUIRE(toF16(-fromF16(half)) == (half | 0x8000));
    // halfway to the next one: to the even one, and else to the nearer one
    const double next = bits == 0x7bff ? 65536 : double{fromF16(static_cast<uint16_t>(bits + 1))};
    const auto middle = static_cast<float>((number + next) / 2);
    REQUIRE(toF16(middle) == (bits % 2 == 0 ? bits : bits + 1));
    REQUIRE(toF16(std::nextafter(middle, 0.0F)) == bits);
    REQUIRE(toF16(std::nextafter(middle, 1e9F)) == bits + 1);
  }
  CHECK(toF16(1e9F) == 0x7c00);
  CHECK(toF16(0x1p-100F) == 0);
}

}  // namespace
}  // namespace sluice
