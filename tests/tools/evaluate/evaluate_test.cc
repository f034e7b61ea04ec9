#include "tools/evaluate/evaluate.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/testing/moe/reference.h"
#include "tests/testing/moe_program.h"
#include "tools/evaluate/output_errors.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {
namespace {

const MoeShape kShape{
    .ranks = 3, .experts = 6, .topK = 2, .hidden = 11, .intermediate = 7, .maxTokens = 20, .slotRows = 16};
const std::vector<EntryId> kBoth = {{0}, {1}};

VerifiedProgram verified(TaskProgram program) {
  Expected<VerifiedProgram> result = verify(std::move(program));
  if (!result) FAIL(result.error().message);
  return *result;
}

TaskProgram withActivation(ops::ActivationKind kind, float limit) {
  MoeShape shape = kShape;
  shape.activation = kind, shape.limit = limit;
  return buildMoeProgram(shape);
}

std::vector<TensorMap> tensorsFor(const TaskProgram& program) {
  std::vector<TensorMap> tensors;
  const int64_t tokens[] = {20, 0, 13};
  for (int rank = 0; rank < 3; ++rank)
    tensors.push_back(
        *makeProgramInputs(program, {.routing = {RoutingKind::kMasked, 0}}, rank, tokens[rank]));
  return tensors;
}

std::vector<ValueMap> valuesFor(const TaskProgram& program) {
  std::vector<ValueMap> values;
  for (const TensorMap& tensors : tensorsFor(program)) values.push_back(toValues(tensors));
  return values;
}

void checkNear(std::span<const double> found, std::span<const double> expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(1e-12));
}

TEST_CASE("the families of the layer compute what its formulas say, whatever the activation") {
  using enum ops::ActivationKind;
  for (const auto& [kind, limit] : {std::pair(kSwiglu, 0.0f),
                                    {kSwigluClamp, 1.5f},
                                    {kGeglu, 0.0f},
                                    {kReglu, 0.0f},
                                    {kSilu, 0.0f},
                                    {kRelu2, 0.0f}}) {
    const VerifiedProgram program = verified(withActivation(kind, limit));
    const auto outputs = evaluate(program, kBoth, valuesFor(*program), {.threads = 2});
    REQUIRE(outputs.ok());

    const MoeDims dims = *moeDimsOf(*program);
    const std::vector<TensorMap> tensors = tensorsFor(*program);
    std::vector<MoeInputs> inputs;
    for (const TensorMap& map : tensors)
      inputs.push_back(*moeInputs(dims, static_cast<int>(inputs.size()), map));
    const auto checkExpert = [&](int expert, std::span<const double> gateUp, std::span<const double> down) {
      const ValueMap& owner = (*outputs)[static_cast<size_t>(expert / 2)];
      const auto part = [&](const char* name, size_t size) {
        return std::span(owner.at(name).data).subspan(static_cast<size_t>(expert % 2) * size, size);
      };
      checkNear(part("gate_up_weight_grad", gateUp.size()), gateUp);
      checkNear(part("down_weight_grad", down.size()), down);
    };
    const auto expected = moeReference(dims, inputs, checkExpert, 1);
    REQUIRE(expected.ok());
    for (size_t rank = 0; rank < 3; ++rank) {
      checkNear((*outputs)[rank].at("y").data, (*expected)[rank].y);
      checkNear((*outputs)[rank].at("dx").data, (*expected)[rank].dx);
      checkNear((*outputs)[rank].at("d_expert_weights").data, (*expected)[rank].dExpertWeights);
    }
  }
}

TEST_CASE("what is stored is rounded only if that is asked for") {
  const VerifiedProgram program = verified(buildMoeProgram(kShape));
  const std::vector<ValueMap> inputs = valuesFor(*program);
  const auto exact = evaluate(program, kBoth, inputs, {});
  const auto rounded = evaluate(program, kBoth, inputs, {.roundStored = true});
  for (const char* name : {"y", "dx", "gate_up_weight_grad"}) {
    const double error = relativeError({&(*rounded)[0].at(name)}, {&(*exact)[0].at(name)});
    CHECK(error > 1e-4);
    CHECK(error < 1.2e-2);
  }
  Values again = (*rounded)[0].at("y");
  roundTo(DType::kBF16, again.data);
  CHECK(again == (*rounded)[0].at("y"));
}

TEST_CASE("gradients are added to what the caller gives, or to 0") {
  TaskProgram adding = buildMoeProgram(kShape);
  for (Family& family : adding.families)
    if (family.op == OpKind::kGmmWeightGrad) family.tiling.flags |= 1;
  const VerifiedProgram program = verified(std::move(adding));
  std::vector<ValueMap> inputs = valuesFor(*program);
  const auto added = evaluate(program, kBoth, inputs, {});
  const Values start = inputs[2].at("down_weight_grad");
  CHECK(relativeError({&start}, {&(*added)[2].at("down_weight_grad")}) > 0.1);
  for (ValueMap& map : inputs) map.erase("down_weight_grad");
  const auto alone = evaluate(program, kBoth, inputs, {});
  Values sum = (*alone)[2].at("down_weight_grad");
  for (size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += start.data[i];
  checkNear((*added)[2].at("down_weight_grad").data, sum.data);
}

TEST_CASE("what is wrong with the inputs is said") {
  const VerifiedProgram program = verified(buildMoeProgram(kShape));
  const std::vector<ValueMap> good = valuesFor(*program);
  const auto errorWith = [&](const auto& change) {
    std::vector<ValueMap> inputs = good;
    change(inputs);
    const auto result = evaluate(program, kBoth, inputs, {});
    return result ? "" : result.error().message;
  };
  CHECK(errorWith([](auto& in) { in[1].erase("x"); }) == "rank 1: tensor 'x' is missing");
  CHECK(errorWith([](auto& in) { in[0].at("dy") = {{19, 11}, std::vector<double>(19 * 11)}; }) ==
        "rank 0: tensor 'dy' has shape [19, 11], expected [20, 11]");
  CHECK(errorWith([](auto& in) { in[0].at("x") = {{220}, std::vector<double>(220)}; }) ==
        "rank 0: tensor 'x' has shape [220], expected [220, 11]");
  CHECK(errorWith([](auto& in) { in[2].at("expert_ids").data[5] = 6; }) ==
        "rank 2, token 2: found expert id 6, expected -1 to 5");
  CHECK(errorWith([](auto& in) {
          auto& ids = in[2].at("expert_ids").data;
          ids[4] = ids[5] = 1;
        }) == "rank 2, token 2: expert id 1 is repeated");
  const std::vector<EntryId> backward = {{1}};
  CHECK_THAT(evaluate(program, backward, good, {}).error().message,
             Catch::Matchers::StartsWith("entry 'backward' reads buffer '") &&
                 Catch::Matchers::EndsWith("', which no entry before it wrote"));
}

TEST_CASE("outputs are compared by name, with the entries that they need") {
  const TaskProgram tables = buildMoeProgram(kShape);
  TensorMap y, dx;
  y.emplace("y", Tensor(DType::kBF16, {20, 11}));
  dx.emplace("dx", Tensor(DType::kBF16, {20, 11}));
  CHECK(entriesFor(tables, y) == std::vector<EntryId>{{0}});
  CHECK(entriesFor(tables, dx) == kBoth);
  CHECK(entriesFor(tables, {}).empty());
}

TEST_CASE("an output that is all zero has an error of 1") {
  const VerifiedProgram program = verified(buildMoeProgram(kShape));
  const std::vector<TensorMap> inputs = tensorsFor(*program);
  const auto outputs = [&](const char* name, std::vector<int64_t> columns) {
    std::vector<TensorMap> maps(3);
    for (size_t rank = 0; rank < 3; ++rank)
      maps[rank].emplace(name, Tensor(DType::kBF16, {inputs[rank].at("x").shape()[0], columns[0]}));
    return maps;
  };
  const auto errors = outputErrors(program, inputs, outputs("dx", {11}), 1);
  REQUIRE(errors.ok());
  REQUIRE(errors->size() == 1);
  CHECK(errors->front().name == "dx");
  CHECK(errors->front().relative == Approx(1));
  CHECK(outputErrors(program, inputs, outputs("dx", {10}), 1).error().message ==
        "rank 0: tensor 'dx': found BF16 [20, 10], expected BF16 [20, 11]");
  CHECK(outputErrors(program, inputs, outputs("dz", {11}), 1).error().message ==
        "tensor 'dz' is no output of program 'moe_ffn'");

  // The same where the tensors are read one by one, and an error of the second.
  const std::vector<TensorMap> zeros = outputs("dx", {11});
  std::vector<TensorMap> described(3);
  for (size_t rank = 0; rank < 3; ++rank)
    described[rank].emplace("dx", Tensor::described(DType::kBF16, zeros[rank].at("dx").shape()));
  std::vector<size_t> asked;
  const auto read = [&](size_t rank, const std::string& name) -> Expected<Tensor> {
    asked.push_back(rank);
    if (asked.size() == 5) return Error{"out-1: damaged"};
    return Tensor(DType::kBF16, described[rank].at(name).shape());
  };
  CHECK(outputErrors(program, inputs, described, 1, false, {}, read)->front().relative == Approx(1));
  CHECK(asked == std::vector<size_t>{0, 1, 2});
  CHECK(outputErrors(program, inputs, described, 1, false, {}, read).error().message == "out-1: damaged");
}

}  // namespace
}  // namespace sluice::tools
