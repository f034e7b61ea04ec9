#include "tests/testing/moe/reference.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tools/moe/inputs.h"

namespace sluice::tools {
namespace {

const MoeDims kDims{2, 6, 3, 8, 10, 7};

// The inputs of all ranks, and their views.
struct Case {
  explicit Case(const char* routing = "masked", std::vector<int64_t> tokens = {5, 3}) {
    InputsSpec spec;
    spec.routing = *parseRouting(routing);
    for (int r = 0; r < kDims.ranks; ++r)
      maps.push_back(makeInputs(kDims, spec, r, tokens[static_cast<size_t>(r)]));
  }
  std::vector<MoeInputs> views() const {
    std::vector<MoeInputs> result;
    for (const TensorMap& map : maps)
      result.push_back(*moeInputs(kDims, static_cast<int>(result.size()), map));
    return result;
  }
  std::vector<TensorMap> maps;
};

struct Results {
  std::vector<MoeTokenResults> tokens;
  std::vector<std::vector<double>> gateUpGrad, downGrad;  // by expert
};

Results compute(const Case& c, int threads = 2) {
  Results results;
  const auto keep = [&](int, std::span<const double> gateUp, std::span<const double> down) {
    results.gateUpGrad.emplace_back(gateUp.begin(), gateUp.end());
    results.downGrad.emplace_back(down.begin(), down.end());
  };
  auto tokens = moeReference(kDims, c.views(), keep, threads);
  REQUIRE(tokens.ok());
  results.tokens = std::move(*tokens);
  return results;
}

// sum of dy * y over all ranks: what the gradients are gradients of.
double loss(const Case& c) {
  const Results results = compute(c, 1);
  double sum = 0;
  for (size_t r = 0; r < c.maps.size(); ++r)
    for (size_t i = 0; i < results.tokens[r].y.size(); ++i)
      sum += toFloat(c.maps[r].at("dy").as<BFloat16>()[i]) * results.tokens[r].y[i];
  return sum;
}

double get(const Tensor& tensor, int64_t i) {
  return tensor.type() == DType::kF32 ? tensor.as<float>()[i] : toFloat(tensor.as<BFloat16>()[i]);
}
void set(Tensor& tensor, int64_t i, double value) {
  if (tensor.type() == DType::kF32)
    tensor.as<float>()[i] = static_cast<float>(value);
  else
    tensor.as<BFloat16>()[i] = toBFloat16(static_cast<float>(value));
}

// The slope of the loss at one element, by a step to either side.
double slope(Case& c, size_t rank, const char* name, int64_t i) {
  Tensor& tensor = c.maps[rank].at(name);
  const double before = get(tensor, i);
  const auto lossAt = [&](double value, double& exact) {
    set(tensor, i, value);
    exact = get(tensor, i);
    const double result = loss(c);
    set(tensor, i, before);
    return result;
  };
  double right = 0, left = 0;
  const double high = lossAt(before + 0.01, right), low = lossAt(before - 0.01, left);
  return (high - low) / (right - left);
}

TEST_CASE("y is the weighted sum over the experts of a token, written out") {
  const Case c;
  const Results results = compute(c);
  for (size_t r = 0; r < 2; ++r) {
    const MoeInputs in = c.views()[r];
    for (int64_t t = 0; t < in.tokens; ++t)
      for (int64_t h = 0; h < 10; ++h) {
        double y = 0;
        for (int64_t k = 0; k < 3; ++k) {
          const int32_t id = in.expertIds[t * 3 + k];
          if (id < 0) continue;
          const MoeInputs owner = c.views()[static_cast<size_t>(id / 3)];
          for (int64_t i = 0; i < 7; ++i) {
            double gate = 0, up = 0;
            for (int64_t j = 0; j < 10; ++j) {
              const BFloat16* row = owner.gateUpWeight + (id % 3 * 10 + j) * 14;
              gate += toFloat(in.x[t * 10 + j]) * toFloat(row[i]);
              up += toFloat(in.x[t * 10 + j]) * toFloat(row[7 + i]);
            }
            y += in.expertWeights[t * 3 + k] * gate / (1 + std::exp(-gate)) * up *
                 toFloat(owner.downWeight[(id % 3 * 7 + i) * 10 + h]);
          }
        }
        CHECK(results.tokens[r].y[static_cast<size_t>(t * 10 + h)] == Approx(y).margin(1e-12));
      }
  }
}

TEST_CASE("every gradient is the slope of the loss") {
  Case c;
  const Results results = compute(c);
  for (size_t r = 0; r < 2; ++r) {
    const int64_t tokens = c.views()[r].tokens;
    for (int64_t i = 0; i < tokens * 10; i += 3)
      CHECK(results.tokens[r].dx[static_cast<size_t>(i)] == Approx(slope(c, r, "x", i)).margin(2e-3));
    for (int64_t i = 0; i < tokens * 3; ++i)
      CHECK(results.tokens[r].dExpertWeights[static_cast<size_t>(i)] ==
            Approx(slope(c, r, "expert_weights", i)).margin(1e-6));
    for (int64_t e = 0; e < 3; ++e) {
      const size_t expert = r * 3 + static_cast<size_t>(e);
      for (int64_t i = 0; i < 140; i += 11)
        CHECK(results.gateUpGrad[expert][static_cast<size_t>(i)] ==
              Approx(slope(c, r, "gate_up_weight", e * 140 + i)).margin(2e-3));
      for (int64_t i = 0; i < 70; i += 11)
        CHECK(results.downGrad[expert][static_cast<size_t>(i)] ==
              Approx(slope(c, r, "down_weight", e * 70 + i)).margin(1e-6));
    }
  }
}

// Stores the reference as outputs of the program's types.
std::vector<TensorMap> outputsOf(const Case& c) {
  const Results results = compute(c);
  std::vector<TensorMap> maps(2);
  for (int r = 0; r < 2; ++r) {
    const int64_t tokens = c.views()[static_cast<size_t>(r)].tokens;
    const auto add = [&](const char* name, const std::vector<double>& values, int64_t first) {
      MoeTensor shape = moeTensor(kDims, name, 0, tokens);
      auto& tensor = maps[static_cast<size_t>(r)].try_emplace(name, shape.type, shape.shape).first->second;
      for (size_t i = 0; i < values.size(); ++i) set(tensor, first + static_cast<int64_t>(i), values[i]);
    };
    add("y", results.tokens[static_cast<size_t>(r)].y, 0);
    add("dx", results.tokens[static_cast<size_t>(r)].dx, 0);
    add("d_expert_weights", results.tokens[static_cast<size_t>(r)].dExpertWeights, 0);
    for (int e = 0; e < 3; ++e) {
      add("gate_up_weight_grad", results.gateUpGrad[static_cast<size_t>(r * 3 + e)], e * 140);
      add("down_weight_grad", results.downGrad[static_cast<size_t>(r * 3 + e)], e * 70);
    }
  }
  return maps;
}

std::vector<OutputError> errorsOf(const Case& c, const std::vector<TensorMap>& outputs) {
  std::vector<MoeOutputs> views;
  for (size_t r = 0; r < 2; ++r)
    views.push_back(*moeOutputs(kDims, static_cast<int>(r), outputs[r], c.views()[r].tokens));
  auto errors = moeErrors(kDims, c.views(), views, 2);
  REQUIRE(errors.ok());
  return *errors;
}

TEST_CASE("the reference rounded to the output types is off by the rounding only") {
  for (const char* routing : {"uniform", "onehot", "half-empty", "masked"}) {
    const Case c(routing, {5, 0});
    const std::vector<OutputError> errors = errorsOf(c, outputsOf(c));
    REQUIRE(errors.size() == 5);
    for (const OutputError& error : errors) {
      INFO(routing << " " << error.name);
      CHECK(error.relative < 4e-3);
    }
  }
}

TEST_CASE("one wrong element of any output, at any rank, is seen") {
  const Case c;
  for (const OutputError& target : errorsOf(c, outputsOf(c)))
    for (size_t r = 0; r < 2; ++r) {
      std::vector<TensorMap> outputs = outputsOf(c);
      Tensor& tensor = outputs[r].at(std::string(target.name));
      set(tensor, tensor.elements() - 1, get(tensor, tensor.elements() - 1) + 3);
      for (const OutputError& error : errorsOf(c, outputs)) {
        INFO(target.name << " " << error.name);
        CHECK((error.relative > 0.02) == (error.name == target.name));
      }
    }
}

TEST_CASE("a NaN in an output makes its error NaN") {
  const Case c;
  std::vector<TensorMap> outputs = outputsOf(c);
  set(outputs[1].at("y"), 2, NAN);
  CHECK(std::isnan(errorsOf(c, outputs)[0].relative));
}

TEST_CASE("without dy only y is looked at") {
  Case c;
  const std::vector<TensorMap> outputs = outputsOf(c);
  for (TensorMap& map : c.maps) map.erase("dy");
  const std::vector<OutputError> errors = errorsOf(c, outputs);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].name == "y");
}

TEST_CASE("wrong ids and tensors are refused with rank, token and what was expected") {
  Case c;
  c.maps[1].at("expert_ids").as<int32_t>()[4] = 6;
  CHECK(moeReference(kDims, c.views(), {}, 1).error().message ==
        "rank 1, token 1: found expert id 6, expected -1 to 5");
  c.maps[1].at("expert_ids").as<int32_t>()[3] = 2;
  c.maps[1].at("expert_ids").as<int32_t>()[4] = 2;
  CHECK(moeReference(kDims, c.views(), {}, 1).error().message == "rank 1, token 1: expert id 2 is repeated");
  c.maps[0].erase("down_weight");
  CHECK(moeInputs(kDims, 0, c.maps[0]).error().message == "tensor 'down_weight' is missing");
  c.maps[0].emplace("down_weight", Tensor(DType::kF32, {3, 7, 10}));
  CHECK(moeInputs(kDims, 0, c.maps[0]).error().message ==
        "tensor 'down_weight': found F32 [3, 7, 10], expected BF16 [3, 7, 10]");
}

}  // namespace
}  // namespace sluice::tools
