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
    if (type == DType::kF16)
      CHECK(std::isnan(elementAt(type, data, 1)));
    else
      CHECK(elementAt(type, data, 1) == -3);
  }
}

}  // namespace
}  // namespace sluice
