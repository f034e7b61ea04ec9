// The formulas of the gradients against central differences of the formulas of the forward, in double
// precision.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>

#include "ops/reference/reference.h"
#include "tests/testing/moe/reference.h"

namespace sluice {
namespace {

constexpr double kDifference = 1e-5;
constexpr double kDifferenceTolerance = 1e-8;  // the error of a central difference is about kDifference^2

using Values = std::vector<double>;

// A tensor that a kernel reads in its own type, and the loss in double: the same numbers.
template <class T>
struct Parameter {
  std::vector<T> stored;
  Values values;
};

Parameter<BFloat16> randomBf16(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Parameter<BFloat16> made;
  for (size_t i = 0; i < count; ++i) {
    made.stored.push_back(toBFloat16(normal(random)));
    made.values.push_back(toFloat(made.stored.back()));
  }
  return made;
}

Parameter<float> randomF32(size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  Parameter<float> made;
  for (size_t i = 0; i < count; ++i) {
    made.stored.push_back(uniform(random));
    made.values.push_back(made.stored.back());
  }
  return made;
}

// `gradient` is that of `loss` by `at`, which the loss reads.
void checkGradient(const char* name, Values& at, std::span<const double> gradient,
                   const std::function<double()>& loss) {
  REQUIRE(gradient.size() == at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    at[i] = value + kDifference;
    const double above = loss();
    at[i] = value - kDifference;
    const double below = loss();
    at[i] = value;
    const double expected = (above - below) / (2 * kDifference);
    INFO(name << "[" << i << "]: " << gradient[i] << ", by differences " << expected);
    CHECK(std::abs(gradient[i] - expected) <= kDifferenceTolerance * (1 + std::abs(expected)));
  }
}

double swiglu(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

TEST_CASE("the gradients of the activation and of the row's weight are those of weight . (d . act)") {
  constexpr int kRows = 3, kInter = 5;
  std::mt19937 random(1);
  const auto actGrad = randomBf16(kRows * kInter, random);
  auto gateUp = randomBf16(kRows * 2 * kInter, random);
  auto weight = randomF32(kRows, random);
  Values gateUpGrad(kRows * 2 * kInter), weightGrad(kRows);
  ops::ActivationGradArgs args{};
  args.actGrad = actGrad.stored.data();
  args.ldActGrad = kInter;
  args.gateUp = gateUp.stored.data();
  args.ldGateUp = 2 * kInter;
  args.rowWeight = weight.stored.data();
  args.rows = kRows;
  args.inter = kInter;
  ops::activationGradReference(args, gateUpGrad.data(), weightGrad.data());
  const auto loss = [&] {
    double sum = 0;
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kInter; ++i) {
        const double* line = gateUp.values.data() + r * 2 * kInter;
        sum += weight.values[r] * actGrad.values[r * kInter + i] * swiglu(line[i], line[kInter + i]);
      }
    return sum;
  };
  checkGradient("gate_up", gateUp.values, gateUpGrad, loss);
  checkGradient("row weight", weight.values, weightGrad, loss);
}

TEST_CASE("the gradient of a weight is that of scale . a W b") {
  constexpr int kRows = 4, kM = 3, kN = 5;
  std::mt19937 random(2);
  const auto a = randomBf16(kRows * kM, random), b = randomBf16(kRows * kN, random);
  const auto scale = randomF32(kRows, random);
  Values weight = randomBf16(kM * kN, random).values, grad(kM * kN);
  ops::GmmWeightGradArgs args{};
  args.a = {a.stored.data(), kM};
  args.b = {b.stored.data(), kN};
  args.scale = scale.stored.data();
  args.rows = kRows;
  args.m = kM;
  args.n = kN;
  ops::gmmWeightGradReference(args, grad.data());
  checkGradient("weight", weight, grad, [&] {
    double sum = 0;
    for (int r = 0; r < kRows; ++r)
      for (int m = 0; m < kM; ++m)
        for (int n = 0; n < kN; ++n)
          sum += scale.values[r] * a.values[r * kM + m] * weight[m * kN + n] * b.values[r * kN + n];
    return sum;
  });
}

// One rank's layer with two experts, of which the second token's second pair has none.
struct Layer {
  static constexpr int kTokens = 3, kTopK = 2, kExperts = 2, kHidden = 4, kInter = 3;

  std::mt19937 random{3};
  Parameter<BFloat16> x = randomBf16(kTokens * kHidden, random);
  Parameter<BFloat16> dy = randomBf16(kTokens * kHidden, random);
  Parameter<BFloat16> gateUpWeight = randomBf16(kExperts * kHidden * 2 * kInter, random);
  Parameter<BFloat16> downWeight = randomBf16(kExperts * kInter * kHidden, random);
  Parameter<float> expertWeights = randomF32(kTokens * kTopK, random);
  std::vector<int32_t> ids = {1, 0, 1, -1, 0, 1};

  // row = act(x @ gate_up_weight) @ down_weight, of one pair
  double pairLoss(int token, int expert) const {
    const double* up = gateUpWeight.values.data() + expert * kHidden * 2 * kInter;
    const double* down = downWeight.values.data() + expert * kInter * kHidden;
    double sum = 0;
    for (int i = 0; i < kInter; ++i) {
      double gate = 0, linear = 0;
      for (int h = 0; h < kHidden; ++h) {
        gate += x.values[token * kHidden + h] * up[h * 2 * kInter + i];
        linear += x.values[token * kHidden + h] * up[h * 2 * kInter + kInter + i];
      }
      for (int h = 0; h < kHidden; ++h)
        sum += dy.values[token * kHidden + h] * swiglu(gate, linear) * down[i * kHidden + h];
    }
    return sum;
  }

  // dy . y
  double loss() const {
    double sum = 0;
    for (int pair = 0; pair < kTokens * kTopK; ++pair)
      if (ids[pair] >= 0) sum += expertWeights.values[pair] * pairLoss(pair / kTopK, ids[pair]);
    return sum;
  }
};

TEST_CASE("all four gradients of a small layer are those of dy . y") {
  Layer layer;
  tools::MoeDims dims;
  dims.experts = Layer::kExperts;
  dims.topK = Layer::kTopK;
  dims.maxTokens = Layer::kTokens;
  dims.hidden = Layer::kHidden;
  dims.inter = Layer::kInter;
  const tools::MoeInputs inputs{Layer::kTokens,
                                layer.x.stored.data(),
                                layer.ids.data(),
                                layer.expertWeights.stored.data(),
                                layer.gateUpWeight.stored.data(),
                                layer.downWeight.stored.data(),
                                layer.dy.stored.data()};
  Values gateUpGrad, downGrad;
  const auto collect = [&](int, std::span<const double> gateUp, std::span<const double> down) {
    gateUpGrad.insert(gateUpGrad.end(), gateUp.begin(), gateUp.end());
    downGrad.insert(downGrad.end(), down.begin(), down.end());
  };
  const auto results = tools::moeReference(dims, {&inputs, 1}, collect, 1);
  REQUIRE(results.ok());
  const tools::MoeTokenResults& tokens = results->front();
  const auto loss = [&] { return layer.loss(); };
  checkGradient("x", layer.x.values, tokens.dx, loss);
  checkGradient("expert_weights", layer.expertWeights.values, tokens.dExpertWeights, loss);
  checkGradient("gate_up_weight", layer.gateUpWeight.values, gateUpGrad, loss);
  checkGradient("down_weight", layer.downWeight.values, downGrad, loss);
}

}  // namespace
}  // namespace sluice
