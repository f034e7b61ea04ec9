// Every implementation of the gradient of SwiGLU against the reference.
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

void checkGrad(const Implementation& by, const Bf16Matrix& gateUp, const Bf16Matrix& actGrad,
               const std::vector<float>& weight, int32_t rows, int32_t inter, bool wantRowGrad) {
  INFO(by.name << " rows " << rows << " inter " << inter);
  Bf16Matrix grad(rows, 2 * inter, 2 * inter + 3, kBf16Canary, true);
  F32Matrix rowGrad(rows, 1, 1, kF32Canary, true);
  const ActivationGradArgs args = {actGrad.data(),
                                   actGrad.ld(),
                                   gateUp.data(),
                                   gateUp.ld(),
                                   weight.empty() ? nullptr : weight.data(),
                                   grad.data(),
                                   grad.ld(),
                                   wantRowGrad ? rowGrad.data() : nullptr,
                                   rows,
                                   inter};
  by.kernels.activationGrad(args);
  std::vector<double> want(static_cast<size_t>(rows) * 2 * inter), wantRow(rows);
  activationGradReference(args, want.data(), wantRow.data());
  int wrong = 0;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t i = 0; i < 2 * inter; ++i) {
      const double value = want[static_cast<size_t>(r) * 2 * inter + i];
      if (!agrees(toFloat(grad.at(r, i)), value, kBf16Rounding * std::abs(value) + 4e-6)) ++wrong;
    }
    if (wantRowGrad && !agrees(rowGrad.at(r, 0), wantRow[r], (inter + 20) * kF32Rounding * (inter + 1)))
      ++wrong;
    if (!wantRowGrad && rowGrad.at(r, 0) != kF32Canary) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(grad.gapsAreUntouched());
  CHECK(rowGrad.gapsAreUntouched());
}

TEST_CASE("every gradient of SwiGLU agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 2, 17})
      for (int32_t inter : {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257})
        for (bool weighted : {false, true}) {
          const int64_t gap = weighted ? 5 : 0;
          const Bf16Matrix gateUp = randomInput(random, rows, 2 * inter, 2 * inter + gap, gap);
          const Bf16Matrix actGrad = randomInput(random, rows, inter, inter + gap, gap);
          const std::vector<float> weight = weighted ? randomFloats(random, rows) : std::vector<float>{};
          checkGrad(by, gateUp, actGrad, weight, rows, inter, weighted);
          checkGrad(by, gateUp, actGrad, weight, rows, inter, !weighted);
        }
}

TEST_CASE("the sigmoid of every implementation is exact to 5e-7 for every bf16 there is") {
  // With d = u = 1 and one column, rowWeightGrad is g * s in fp32.
  constexpr int32_t kRows = 1 << 16;
  Bf16Matrix gateUp(kRows, 2, 2, kBf16NaN, false), actGrad(kRows, 1, 1, kBf16NaN, false);
  for (int32_t r = 0; r < kRows; ++r) {
    gateUp.at(r, 0) = {static_cast<uint16_t>(r)};
    gateUp.at(r, 1) = actGrad.at(r, 0) = toBFloat16(1);
  }
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Bf16Matrix grad(kRows, 2, 2, kBf16Canary, true);
    std::vector<float> rowGrad(kRows);
    by.kernels.activationGrad(
        {actGrad.data(), 1, gateUp.data(), 2, nullptr, grad.data(), 2, rowGrad.data(), kRows, 1});
    int wrong = 0;
    for (int32_t r = 0; r < kRows; ++r) {
      const double g = toFloat(gateUp.at(r, 0));
      const double want = g * (1 / (1 + std::exp(-g)));
      // exp(-g) overflows below -88.7 in fp32: the result is 0 instead of at most 3e-37.
      if (!agrees(rowGrad[r], want, 5e-7 * std::abs(want) + (g < -87 ? 1e-35 : 0))) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the gradient of SwiGLU saturates and passes NaN of any input") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    constexpr int32_t kInter = 19;
    Bf16Matrix gateUp(1, 2 * kInter, 2 * kInter, kBf16NaN, false),
        actGrad(1, kInter, kInter, kBf16NaN, false);
    for (int32_t i = 0; i < kInter; ++i) {
      gateUp.at(0, i) = toBFloat16(i % 2 == 0 ? 1e4f : -1e4f);
      gateUp.at(0, kInter + i) = actGrad.at(0, i) = toBFloat16(1);
    }
    gateUp.at(0, 18) = kBf16NaN;
    gateUp.at(0, kInter + 16) = kBf16NaN;
    actGrad.at(0, 14) = kBf16NaN;
    Bf16Matrix grad(1, 2 * kInter, 2 * kInter, kBf16Canary, true);
    float rowGrad = 0;
    by.kernels.activationGrad({actGrad.data(), kInter, gateUp.data(), 2 * kInter, nullptr, grad.data(),
                               2 * kInter, &rowGrad, 1, kInter});
    CHECK(std::isnan(rowGrad));
    for (int32_t i = 0; i < kInter; ++i) {
      const float gate = toFloat(grad.at(0, i)), up = toFloat(grad.at(0, kInter + i));
      INFO("column " << i);
      CHECK(std::isnan(gate) == (i == 14 || i == 16 || i == 18));
      CHECK(std::isnan(up) == (i == 14 || i == 18));
      if (i < 14) CHECK(gate == (i % 2 == 0 ? 1.0f : 0.0f));
      if (i < 14) CHECK(up == (i % 2 == 0 ? toFloat(toBFloat16(1e4f)) : 0.0f));
    }
  }
}

}  // namespace
}  // namespace sluice::ops
