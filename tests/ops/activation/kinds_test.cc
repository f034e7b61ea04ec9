// The activations: their reference against known values and finite differences, and every implementation of
// them and of their gradients against the reference.
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "runtime/abi/activation.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

struct Kind {
  std::string name;
  ActivationKind kind;
  float limit;
};

const std::vector<Kind> kKinds = {{"swiglu", ActivationKind::kSwiglu, 0},
                                  {"swiglu_clamp", ActivationKind::kSwigluClamp, 1.75f},
                                  {"geglu", ActivationKind::kGeglu, 0},
                                  {"reglu", ActivationKind::kReglu, 0},
                                  {"squared_reglu", ActivationKind::kSquaredReglu, 0},
                                  {"swiglu_oai", ActivationKind::kSwigluOai, 1.75f},
                                  {"silu", ActivationKind::kSilu, 0},
                                  {"relu2", ActivationKind::kRelu2, 0}};

int32_t inputsOf(const Kind& k) { return findInfo(k.kind).inputs; }

TEST_CASE("every activation is tested here") {
  CHECK(kKinds.size() == static_cast<size_t>(ActivationKind::MAX) + 1);
}

TEST_CASE("the activations have the values of their formulas") {
  const auto act = [](ActivationKind kind, double gate, double up) {
    return activationAt(kind, 7, gate, up).act();
  };
  CHECK(act(ActivationKind::kSwiglu, 1, 2) == Approx(2 * 0.7310585786300049));
  CHECK(act(ActivationKind::kSwigluClamp, 1, 2) == act(ActivationKind::kSwiglu, 1, 2));
  CHECK(act(ActivationKind::kSwigluClamp, 9, -8) == act(ActivationKind::kSwiglu, 7, -7));
  CHECK(act(ActivationKind::kSwigluClamp, -9, 8) == act(ActivationKind::kSwiglu, -9, 7));
  for (double x : {-14.0, -3.0, -1.0, 0.0, 0.5, 1.0, 4.0, 14.0}) {
    const double tanhForm = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    CHECK(act(ActivationKind::kGeglu, x, 3) == Approx(3 * tanhForm).margin(1e-15));
  }
  CHECK(act(ActivationKind::kReglu, 1.5, -2) == -3);
  CHECK(act(ActivationKind::kReglu, -1.5, -2) == 0);
  CHECK(act(ActivationKind::kSquaredReglu, 1.5, -2) == -4.5);
  CHECK(act(ActivationKind::kSquaredReglu, -1.5, -2) == 0);
  CHECK(act(ActivationKind::kSwigluOai, 1, 2) == Approx(3 / (1 + std::exp(-1.702))));
  CHECK(act(ActivationKind::kSwigluOai, 9, -8) == Approx(-6 * 7 / (1 + std::exp(-1.702 * 7))));
  CHECK(act(ActivationKind::kSwigluOai, -9, 8) == Approx(8 * -9 / (1 + std::exp(1.702 * 9))));
  for (double unused : {0.0, 5.0, std::nan("")}) {
    CHECK(act(ActivationKind::kSilu, 1, unused) == Approx(0.7310585786300049));
    CHECK(act(ActivationKind::kSilu, -2, unused) == Approx(-2 / (1 + std::exp(2.0))));
    CHECK(act(ActivationKind::kRelu2, 1.5, unused) == 2.25);
    CHECK(act(ActivationKind::kRelu2, -1.5, unused) == 0);
  }
}

TEST_CASE("the slopes of the activations are their finite differences") {
  Random random(1);
  constexpr double kStep = 1e-5;
  for (const Kind& k : kKinds)
    for (int i = 0; i < 2000; ++i) {
      const double gate = uniform(random, -6, 6), up = uniform(random, -6, 6);
      const auto near = [](double x, double corner) { return std::abs(std::abs(x) - corner) < 2 * kStep; };
      if (near(gate, 0) || near(gate, k.limit) || near(up, k.limit)) continue;
      const auto act = [&](double dGate, double dUp) {
        return activationAt(k.kind, k.limit, gate + dGate, up + dUp).act();
      };
      const ActivationPoint point = activationAt(k.kind, k.limit, gate, up);
      INFO(k.name << " at " << gate << ", " << up);
      REQUIRE(point.gateSlope() == Approx((act(kStep, 0) - act(-kStep, 0)) / (2 * kStep)).margin(1e-7));
      if (inputsOf(k) == 1) continue;
      REQUIRE(point.upSlope() == Approx((act(0, kStep) - act(0, -kStep)) / (2 * kStep)).margin(1e-7));
    }
}

// gate and up are in [-6, 6], the range in which the kinds differ.
Bf16Matrix wideInput(Random& random, int32_t rows, int32_t cols, int64_t gap) {
  Bf16Matrix matrix = randomInput(random, rows, cols, cols + gap, gap);
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t c = 0; c < cols; ++c) matrix.at(r, c) = toBFloat16(uniform(random, -6, 6));
  return matrix;
}

void checkKind(const Implementation& by, const Kind& k, const Bf16Matrix& gateUp, const Bf16Matrix& actGrad,
               const std::vector<float>& weight, int32_t rows, int32_t inter) {
  INFO(by.name << " " << k.name << " rows " << rows << " inter " << inter);
  const int32_t read = inputsOf(k) * inter;
  Bf16Matrix act(rows, inter, inter + 3, kBf16Canary, true);
  Bf16Matrix grad(rows, read, read + 3, kBf16Canary, true);
  std::vector<float> rowGrad(rows);
  const ActivationArgs forward = {gateUp.data(), gateUp.ld(), act.data(), act.ld(),
                                  rows,          inter,       k.kind,     k.limit};
  ActivationGradArgs backward = {actGrad.data(), actGrad.ld(), gateUp.data(), gateUp.ld(),
                                 weight.data(),  grad.data(),  grad.ld(),     rowGrad.data(),
                                 rows,           inter,        k.kind,        k.limit};
  Bf16Matrix weighted(rows, inter, inter + 5, kBf16Canary, true);
  backward.weightedAct = {weighted.data(), weighted.ld()};
  by.kernels.activation(forward);
  by.kernels.activationGrad(backward);
  const size_t count = static_cast<size_t>(rows) * inter;
  std::vector<double> wantAct(count), wantGrad(inputsOf(k) * count), wantRow(rows);
  activationReference(forward, wantAct.data());
  activationGradReference(backward, wantGrad.data(), wantRow.data());
  const auto near = [](float got, double want) {
    return agrees(got, want, (kBf16Rounding + 2e-5) * std::abs(want) + 2e-5);
  };
  int wrong = 0;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t i = 0; i < inter; ++i) {
      wrong += !near(toFloat(act.at(r, i)), wantAct[static_cast<size_t>(r) * inter + i]);
      // the bits of what the activation has stored, weighted
      wrong += weighted.at(r, i) != toBFloat16(weight[r] * toFloat(act.at(r, i)));
    }
    for (int32_t i = 0; i < read; ++i)
      wrong += !near(toFloat(grad.at(r, i)), wantGrad[static_cast<size_t>(r) * read + i]);
    wrong += !agrees(rowGrad[r], wantRow[r], 36 * (inter + 20) * kF32Rounding * (inter + 1));
  }
  CHECK(wrong == 0);
  CHECK(act.gapsAreUntouched());
  CHECK(grad.gapsAreUntouched());
  CHECK(weighted.gapsAreUntouched());
}

TEST_CASE("every activation and gradient agrees with the reference at ragged, empty and odd sizes") {
  Random random(2);
  for (const Implementation& by : implementations())
    for (const Kind& k : kKinds)
      for (int32_t rows : {0, 1, 5})
        for (int32_t inter : {0, 1, 7, 8, 15, 16, 17, 33, 100, 257})
          for (int64_t gap : {0, 5})
            checkKind(by, k, wideInput(random, rows, inputsOf(k) * inter, gap),
                      randomInput(random, rows, inter, inter + gap, gap), randomFloats(random, rows), rows,
                      inter);
}

// One row of `width` columns for each input; columns [begin, begin + count) are run as
// a tile, and must have the bits of the whole row.
void checkTile(const Implementation& by, const Kind& k, int32_t rows, int32_t width, int32_t begin,
               int32_t count) {
  Random random(11);
  const Bf16Matrix gateUp = wideInput(random, rows, inputsOf(k) * width, 4);
  const Bf16Matrix actGrad = randomInput(random, rows, width, width + 1);
  Bf16Matrix act(rows, width, width + 3, kBf16Canary, true), part(rows, count, count + 2, kBf16Canary, true);
  Bf16Matrix grad(rows, inputsOf(k) * width, inputsOf(k) * width + 3, kBf16Canary, true), partGrad = grad;
  by.kernels.activation({gateUp.data(), gateUp.ld(), act.data(), act.ld(), rows, width, k.kind, k.limit});
  by.kernels.activation(
      {gateUp.data() + begin, gateUp.ld(), part.data(), part.ld(), rows, count, k.kind, k.limit, width});
  by.kernels.activationGrad({actGrad.data(), actGrad.ld(), gateUp.data(), gateUp.ld(), nullptr, grad.data(),
                             grad.ld(), nullptr, rows, width, k.kind, k.limit});
  for (auto [first, columns] : {std::pair{0, begin}, {begin, count}, {begin + count, width - begin - count}})
    by.kernels.activationGrad({actGrad.data() + first, actGrad.ld(), gateUp.data() + first, gateUp.ld(),
                               nullptr, partGrad.data() + first, partGrad.ld(), nullptr, rows, columns,
                               k.kind, k.limit, width, width});
  INFO(by.name << " " << k.name << " width " << width << " from " << begin << " on " << count);
  int wrong = 0;
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t i = 0; i < count; ++i) wrong += act.at(r, begin + i) != part.at(r, i);
  CHECK(wrong == 0);
  CHECK(part.gapsAreUntouched());
  CHECK(grad.sameBits(partGrad));
  CHECK(partGrad.gapsAreUntouched());
}

TEST_CASE("a tile of columns of an activation has the bits of the whole, wherever its up lies") {
  for (const Implementation& by : implementations())
    for (const Kind& k : kKinds) {
      checkTile(by, k, 3, 100, 32, 48);
      checkTile(by, k, 2, 37, 5, 17);
      checkTile(by, k, 1, 8, 0, 8);
    }
}

TEST_CASE("the references take up from where it is said to lie") {
  Random random(12);
  const Bf16Matrix gateUp = wideInput(random, 2, 20, 0), actGrad = randomInput(random, 2, 3, 3);
  std::vector<double> whole(20), part(6), grad(12), row(2);
  activationReference({gateUp.data(), 20, nullptr, 0, 2, 10, ActivationKind::kGeglu, 0}, whole.data());
  activationReference({gateUp.data() + 4, 20, nullptr, 0, 2, 3, ActivationKind::kGeglu, 0, 10}, part.data());
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 3; ++i) CHECK(part[r * 3 + i] == whole[r * 10 + 4 + i]);
  activationGradReference({actGrad.data(), 3, gateUp.data() + 4, 20, nullptr, nullptr, 0, nullptr, 2, 3,
                           ActivationKind::kGeglu, 0, 10, 10},
                          grad.data(), row.data());
  for (int r = 0; r < 2; ++r) {
    double sum = 0;
    for (int i = 0; i < 3; ++i) sum += double{toFloat(actGrad.at(r, i))} * part[r * 3 + i];
    CHECK(row[r] == Approx(sum));
  }
}

TEST_CASE("a kind without a gate has the bits of the gated one whose up is 1") {
  Random random(13);
  constexpr int32_t kRows = 3, kInter = 41;
  Bf16Matrix gateUp = wideInput(random, kRows, 2 * kInter, 0);
  const Bf16Matrix actGrad = randomInput(random, kRows, kInter, kInter);
  const std::vector<float> weight = randomFloats(random, kRows);
  for (int32_t r = 0; r < kRows; ++r)
    for (int32_t i = 0; i < kInter; ++i) gateUp.at(r, kInter + i) = toBFloat16(1);
  for (const Implementation& by : implementations())
    for (const auto& [plain, gated] : {std::pair(ActivationKind::kSilu, ActivationKind::kSwiglu),
                                       {ActivationKind::kRelu2, ActivationKind::kSquaredReglu}}) {
      INFO(by.name << " " << static_cast<int>(plain));
      Bf16Matrix act[2] = {{kRows, kInter, kInter, kBf16Canary, true},
                           {kRows, kInter, kInter, kBf16Canary, true}};
      Bf16Matrix grad[2] = {{kRows, kInter, 2 * kInter, kBf16Canary, true},
                            {kRows, 2 * kInter, 2 * kInter, kBf16Canary, true}};
      std::vector<float> rowGrad[2] = {std::vector<float>(kRows), std::vector<float>(kRows)};
      for (int i = 0; i < 2; ++i) {
        const ActivationKind kind = i == 0 ? plain : gated;
        by.kernels.activation({gateUp.data(), gateUp.ld(), act[i].data(), kInter, kRows, kInter, kind});
        by.kernels.activationGrad({actGrad.data(), actGrad.ld(), gateUp.data(), gateUp.ld(), weight.data(),
                                   grad[i].data(), grad[i].ld(), rowGrad[i].data(), kRows, kInter, kind});
      }
      CHECK(act[0].sameBits(act[1]));
      CHECK(rowGrad[0] == rowGrad[1]);
      CHECK(grad[0].gapsAreUntouched());
      for (int32_t r = 0; r < kRows; ++r)
        for (int32_t i = 0; i < kInter; ++i) CHECK(grad[0].at(r, i) == grad[1].at(r, i));
    }
}

TEST_CASE("where a limit cuts, the activation is that of the limit and no gradient passes") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    // gate cut, up cut above, up cut below, both at the limit: not cut
    Bf16Matrix gateUp(1, 8, 8, kBf16NaN, false), actGrad(1, 4, 4, kBf16NaN, false);
    const float values[] = {9, 1, -20, 7, 2, 8, -8, -7};
    for (int32_t i = 0; i < 8; ++i) gateUp.at(0, i) = toBFloat16(values[i]);
    for (int32_t i = 0; i < 4; ++i) actGrad.at(0, i) = toBFloat16(1);
    Bf16Matrix grad(1, 8, 8, kBf16Canary, true), act(1, 4, 4, kBf16Canary, true);
    by.kernels.activation({gateUp.data(), 8, act.data(), 4, 1, 4, ActivationKind::kSwigluClamp, 7});
    by.kernels.activationGrad({actGrad.data(), 4, gateUp.data(), 8, nullptr, grad.data(), 8, nullptr, 1, 4,
                               ActivationKind::kSwigluClamp, 7});
    CHECK(toFloat(act.at(0, 0)) == Approx(14).epsilon(0.01));
    CHECK(toFloat(act.at(0, 1)) == Approx(7 * 0.731).epsilon(0.01));
    CHECK(toFloat(grad.at(0, 0)) == 0);
    CHECK(toFloat(grad.at(0, 4)) == Approx(7).epsilon(0.01));
    CHECK(toFloat(grad.at(0, 5)) == 0);
    CHECK(toFloat(grad.at(0, 6)) == 0);
    CHECK(toFloat(grad.at(0, 3)) == Approx(-7).epsilon(0.02));
    CHECK(toFloat(grad.at(0, 7)) == Approx(7).epsilon(0.01));
  }
}

TEST_CASE("activations of every kind pass NaN and stay finite for the largest gates") {
  for (const Implementation& by : implementations())
    for (const Kind& k : kKinds) {
      INFO(by.name << " " << k.name);
      constexpr int32_t kInter = 4;
      const bool isGated = inputsOf(k) == 2;
      Bf16Matrix gateUp(1, 2 * kInter, 2 * kInter, kBf16NaN, false);
      // the largest whose activation is a number, too
      const bool squares = k.kind == ActivationKind::kSquaredReglu || k.kind == ActivationKind::kRelu2;
      const float largest = squares ? 1e19f : 1e38f;
      const float gates[kInter] = {NAN, largest, -largest, 1};
      for (int32_t i = 0; i < kInter; ++i) {
        gateUp.at(0, i) = toBFloat16(gates[i]);
        gateUp.at(0, kInter + i) = i == 3 ? kBf16NaN : toBFloat16(0.5f);
      }
      Bf16Matrix act(1, kInter, kInter, kBf16Canary, true), actGrad(1, kInter, kInter, kBf16NaN, false);
      Bf16Matrix grad(1, 2 * kInter, 2 * kInter, kBf16Canary, true);
      for (int32_t i = 0; i < kInter; ++i) actGrad.at(0, i) = toBFloat16(1);
      by.kernels.activation({gateUp.data(), 8, act.data(), kInter, 1, kInter, k.kind, k.limit});
      by.kernels.activationGrad({actGrad.data(), kInter, gateUp.data(), 8, nullptr, grad.data(), 8, nullptr,
                                 1, kInter, k.kind, k.limit});
      for (int32_t i : {0, 3}) CHECK(std::isnan(toFloat(act.at(0, i))) == (isGated || i == 0));
      for (int32_t i : {1, 2}) {
        CHECK(std::isfinite(toFloat(act.at(0, i))));
        CHECK(std::isfinite(toFloat(grad.at(0, i))));
        if (isGated) CHECK(std::isfinite(toFloat(grad.at(0, kInter + i))));
      }
      if (isGated) CHECK(std::isnan(toFloat(grad.at(0, kInter))));
      CHECK(std::isnan(toFloat(grad.at(0, 3))) == isGated);
      for (int32_t i = 0; i < kInter && !isGated; ++i) CHECK(grad.at(0, kInter + i) == kBf16Canary);
    }
}

}  // namespace
}  // namespace sluice::ops
