// Every implementation of SwiGLU against the reference.
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

Bf16Matrix runSwiglu(const Implementation& by, const Bf16Matrix& gateUp, int32_t rows, int32_t inter) {
  Bf16Matrix act(rows, inter, inter + 3, kBf16Canary, true);
  by.kernels.activation({gateUp.data(), gateUp.ld(), act.data(), act.ld(), rows, inter});
  return act;
}

void checkSwiglu(const Implementation& by, const Bf16Matrix& gateUp, int32_t rows, int32_t inter) {
  INFO(by.name << " rows " << rows << " inter " << inter);
  const Bf16Matrix act = runSwiglu(by, gateUp, rows, inter);
  std::vector<double> want(static_cast<size_t>(rows) * inter);
  activationReference({gateUp.data(), gateUp.ld(), nullptr, 0, rows, inter}, want.data());
  int wrong = 0;
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t i = 0; i < inter; ++i) {
      const double value = want[static_cast<size_t>(r) * inter + i];
      // exp(-gate) overflows below -88.7 in fp32: the result is 0 instead of at most 3e-37 times up.
      if (!agrees(toFloat(act.at(r, i)), value, (kBf16Rounding + 4e-6) * std::abs(value) + 1e-36)) ++wrong;
    }
  CHECK(wrong == 0);
  CHECK(act.gapsAreUntouched());
}

TEST_CASE("every SwiGLU agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 2, 17})
      for (int32_t inter : {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257})
        for (int64_t gap : {0, 5})
          checkSwiglu(by, randomInput(random, rows, 2 * inter, 2 * inter + gap, gap), rows, inter);
}

TEST_CASE("SwiGLU saturates, and passes NaN and infinities as its formula does") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gates = {0.0f,  -0.0f, 1e4f,  -1e4f,  87,       -87,       89,  -89,    -103, -105,
                                    30.0f, -30,   1e38f, -1e38f, infinity, -infinity, NAN, 1e-30f, 0.1f};
  const auto inter = static_cast<int32_t>(gates.size());
  for (const Implementation& by : implementations())
    for (float up : {1.0f, -2.0f, 0.0f, infinity}) {
      Bf16Matrix gateUp(1, 2 * inter, 2 * inter, kBf16NaN, false);
      for (int32_t i = 0; i < inter; ++i) {
        gateUp.at(0, i) = toBFloat16(gates[i]);
        gateUp.at(0, inter + i) = toBFloat16(up);
      }
      INFO("up " << up);
      if (!std::isinf(up)) checkSwiglu(by, gateUp, 1, inter);
      const Bf16Matrix act = runSwiglu(by, gateUp, 1, inter);
      CHECK(std::isnan(toFloat(act.at(0, 16))));
      if (up == 1.0f) CHECK(act.at(0, 3).bits == 0x8000);
      if (std::isinf(up)) CHECK(toFloat(act.at(0, 2)) == infinity);
      if (std::isinf(up)) CHECK(std::isnan(toFloat(act.at(0, 0))));
    }
}

}  // namespace
}  // namespace sluice::ops
