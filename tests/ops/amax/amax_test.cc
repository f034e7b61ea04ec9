// Every implementation of largest magnitudes against a plain loop.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

float amaxBy(const Implementation& by, const Bf16Matrix& a, int32_t rows, int32_t n) {
  float amax = -1;
  by.kernels.amax({.a = a.data(), .lda = a.ld(), .rows = rows, .n = n, .amax = &amax});
  return amax;
}

float plain(const Bf16Matrix& a, int32_t rows, int32_t n) {
  float amax = 0;
  for (int32_t i = 0; i < rows; ++i)
    for (int32_t j = 0; j < n; ++j) {
      const float x = std::abs(toFloat(a.at(i, j)));
      if (std::isnormal(x)) amax = std::max(amax, x);
    }
  return amax;
}

TEST_CASE("the amax is the largest finite magnitude, at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (const int32_t rows : {0, 1, 2, 17, 130})
      for (const int32_t n : {0, 1, 7, 31, 64, 65, 257})
        for (const float special : {0.0F, NAN, INFINITY, -INFINITY, 0x1p-130F, -0x1.fep127F}) {
          INFO(by.name << " rows " << rows << " n " << n << " with " << special);
          Bf16Matrix a = randomInput(random, rows, n, n + 5);
          if (rows > 0 && n > 0) a.at(rows / 2, n - 1) = toBFloat16(special);
          CHECK(amaxBy(by, a, rows, n) == plain(a, rows, n));
        }
}

TEST_CASE("without normal numbers the amax is 0") {
  for (const Implementation& by : implementations())
    for (const float x : {0.0F, -0.0F, 0x1p-130F, NAN, -INFINITY}) {
      Bf16Matrix a(3, 5, 8, kBf16NaN, false);
      for (int32_t i = 0; i < 3; ++i)
        for (int32_t j = 0; j < 5; ++j) a.at(i, j) = toBFloat16(x);
      INFO(by.name << " " << x);
      CHECK(amaxBy(by, a, 3, 5) == 0);
    }
}

}  // namespace
}  // namespace sluice::ops
