#include "ops/torch/layer_signature.h"

#include <catch2/catch.hpp>

#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

const std::vector<std::string> kWeights = {"gate_up_weight", "down_weight"};

TaskProgram layer(bool forwardOnly = false) {
  MoeShape shape;
  shape.ranks = 2;
  shape.experts = 5;
  shape.forwardOnly = forwardOnly;
  return buildMoeProgram(shape);
}

std::string errorOf(const TaskProgram& program, const std::vector<std::string>& weights) {
  const auto signature = readSignature(program, 0, weights);
  return signature ? "" : signature.error().message;
}

bool says(const std::string& message, const std::string& part) {
  INFO(message);
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a layer's signature has shapes as this rank has them") {
  const auto signature = readSignature(layer(), 0, kWeights);
  REQUIRE(signature.ok());
  CHECK(signature->hidden == 32);
  CHECK(signature->outHidden == 32);
  CHECK(signature->topK == 2);
  CHECK(signature->experts == 5);
  CHECK(signature->maxTokens == 64);
  CHECK(signature->weights[0].shape == std::vector<int64_t>{3, 32, 48});
  CHECK(signature->weights[1].shape == std::vector<int64_t>{3, 24, 32});
  CHECK(readSignature(layer(), 1, kWeights)->weights[0].shape == std::vector<int64_t>{2, 32, 48});
}

TEST_CASE("a layer's signature says what backward reads again and which gradients it has") {
  const auto signature = readSignature(layer(), 0, kWeights);
  REQUIRE(signature.ok());
  CHECK(signature->hasBackward);
  CHECK(!signature->backwardReadsX);  // its rows were saved
  CHECK(signature->backwardReadsExpertWeights);
  CHECK(signature->hasDx);
  CHECK(signature->hasExpertWeightsGrad);
  for (const WeightSignature& weight : signature->weights) {
    CHECK(weight.readByForward);
    CHECK(weight.readByBackward);
    CHECK(weight.hasGrad);
    CHECK(weight.gradType == DType::kF32);
    CHECK(!weight.accumulates);
  }
  const auto inference = readSignature(layer(true), 0, kWeights);
  REQUIRE(inference.ok());
  CHECK(!inference->hasBackward);
  CHECK(!inference->hasDx);
  CHECK(!inference->weights[0].hasGrad);
}

TEST_CASE("a layer's signature says which gradients are added to what is there") {
  TaskProgram program = layer();
  for (Family& family : program.families)
    if (family.op == OpKind::kGmmWeightGrad && program.at(family.writes.front()).name == "down_weight_grad")
      family.tiling.flags |= 1;
  const auto signature = readSignature(program, 0, kWeights);
  REQUIRE(signature.ok());
  CHECK(!signature->weights[0].accumulates);
  CHECK(signature->weights[1].accumulates);
}

TEST_CASE("a program that is no layer of these weights is refused by name") {
  CHECK(
      says(errorOf(layer(), {"gate_up_weight"}), "an input 'down_weight', which was not named as a weight"));
  CHECK(says(errorOf(layer(), {"gate_up_weight", "down_weight", "bias"}), "no input 'bias'"));
  CHECK(says(errorOf(layer(), {"gate_up_weight", "gate_up_weight", "down_weight"}),
             "no input 'gate_up_weight'"));
  TaskProgram program = layer();
  program.entries[0].name = "step";
  CHECK(says(errorOf(program, kWeights), "no entry 'forward'"));
  program = layer();
  program.entries[1].name = "again";
  CHECK(says(errorOf(program, kWeights), "an entry 'again'"));
  for (const char* name : {"x", "y", "dx", "expert_weights"}) {
    program = layer();
    for (Buffer& buffer : program.buffers)
      if (buffer.name == name) buffer.type = DType::kF16;
    CHECK(says(errorOf(program, kWeights), std::string("tensor '") + name + "' is F16"));
  }
}

TEST_CASE("the description of a program is JSON with shapes as formulas, whatever its names are") {
  TaskProgram program = layer(true);
  program.name = "a \"b\"\n\xff";
  const std::string text = describeProgram(program, 1);
  CHECK(says(text, R"("name": "a \"b\"\u000a\u00ff")"));
  CHECK(says(text, R"({"name": "x", "type": "BF16", "shape": ["T", 32], "role": "input"})"));
  CHECK(says(text, R"("shape": [2, 32, 48])"));
  CHECK(says(text, R"("experts": 5, "experts_of_rank": 2, "top_k": 2, "max_tokens": 64)"));
  CHECK(says(text, R"({"name": "forward", "inputs": [)"));
}

}  // namespace sluice
