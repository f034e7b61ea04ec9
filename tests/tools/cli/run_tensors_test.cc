#include "tools/cli/run_tensors.h"

#include <catch2/catch.hpp>

#include "tests/testing/moe_program.h"

namespace sluice::tools {
namespace {

std::vector<std::string> names(const TaskProgram& program, const std::vector<BufferId>& ids) {
  std::vector<std::string> result;
  for (BufferId id : ids) result.push_back(program.at(id).name);
  return result;
}

TEST_CASE("an entry needs the inputs that its families read, and writes their outputs") {
  const TaskProgram program = buildMoeProgram({});
  const EntryTensors forward = tensorsOf(program, *findEntries(program, "forward"));
  CHECK(names(program, forward.inputs) ==
        std::vector<std::string>{"x", "expert_ids", "expert_weights", "gate_up_weight", "down_weight"});
  CHECK(names(program, forward.outputs) == std::vector<std::string>{"y"});
  const EntryTensors both = tensorsOf(program, *findEntries(program, ""));
  CHECK(both.inputs.size() == 6);
  CHECK(both.outputs.size() == 5);
}

TEST_CASE("entries run in the order they are named") {
  const TaskProgram program = buildMoeProgram({});
  CHECK(*findEntries(program, "backward,forward") == std::vector<EntryId>{{1}, {0}});
  CHECK_FALSE(findEntries(program, "forward,").ok());
}

TEST_CASE("outputs are made for the tokens of a rank, but for those of extent rows") {
  TaskProgram program = buildMoeProgram({});
  std::vector<BufferId> outputs = tensorsOf(program, *findEntries(program, "")).outputs;
  const TensorMap made = makeOutputs(program, 0, outputs, 7);
  CHECK(made.size() == 5);
  CHECK(made.at("y").shape() == std::vector<int64_t>{7, 32});
  CHECK(made.at("down_weight_grad").shape() == std::vector<int64_t>{4, 24, 32});
  program.buffers[outputs[0].value].shape[0].extent = Extent::kRows;
  CHECK(makeOutputs(program, 0, outputs, 7).size() == 4);
}

TEST_CASE("a file has as many experts as its rank owns") {
  const TaskProgram program = buildMoeProgram({.ranks = 2, .experts = 5});
  const EntryTensors all = tensorsOf(program, *findEntries(program, ""));
  CHECK(makeOutputs(program, 0, all.outputs, 7).at("down_weight_grad").shape() ==
        std::vector<int64_t>{3, 24, 32});
  CHECK(makeOutputs(program, 1, all.outputs, 7).at("down_weight_grad").shape() ==
        std::vector<int64_t>{2, 24, 32});
  TensorMap file;
  for (BufferId id : all.inputs) {
    const Buffer& buffer = program.at(id);
    std::vector<int64_t> shape;
    for (const Dim& dim : buffer.shape) shape.push_back(program.sizeAt(0, dim, 7));
    file.emplace(buffer.name, Tensor(buffer.type, shape));
  }
  CHECK(*checkInputs(program, 0, all.inputs, file) == 7);
  CHECK(checkInputs(program, 1, all.inputs, file).error().message ==
        "tensor 'gate_up_weight': found BF16 [3, 32, 48], expected BF16 [2, 32, 48]");
  file.erase("down_weight");
  CHECK(checkInputs(program, 0, all.inputs, file).error().message ==
        "tensor 'down_weight' is missing, expected BF16 [3, 24, 32]");
}

TEST_CASE("the operations of a row are 6 H I forward and 12 H I backward") {
  const TaskProgram program = buildMoeProgram({});
  CHECK(flopsOf(program, {0}, 10, 7) == 10 * 6 * 32 * 24);
  CHECK(flopsOf(program, {1}, 10, 7) == 10 * 12 * 32 * 24);
}

TEST_CASE("a gradient that is added to begins with what the file has, or with 0") {
  TaskProgram program = buildMoeProgram({});
  std::vector<BufferId> outputs = tensorsOf(program, *findEntries(program, "")).outputs;
  TensorMap made = makeOutputs(program, 0, outputs, 7), file;
  file.emplace("down_weight_grad", Tensor(DType::kF32, {4, 24, 32}));
  file.at("down_weight_grad").as<float>()[5] = 2;
  const auto found = checkInputs(program, 0, {}, file);
  CHECK(found.error().message == "tensor 'down_weight_grad' (F32 [4, 24, 32]) is no input of the program");
  for (Family& family : program.families)
    if (family.op == OpKind::kGmmWeightGrad) family.tiling.flags = 1;
  REQUIRE(checkInputs(program, 0, {}, file).ok());
  made.at("gate_up_weight_grad").as<float>()[0] = 3;
  copyStarts(program, file, made);
  CHECK(made.at("down_weight_grad").as<float>()[5] == 2);
  CHECK(made.at("gate_up_weight_grad").as<float>()[0] == 0);
  file.clear();
  file.emplace("down_weight_grad", Tensor(DType::kBF16, {4, 24, 32}));
  CHECK(checkInputs(program, 0, {}, file).error().message ==
        "tensor 'down_weight_grad': found BF16 [4, 24, 32], expected F32 [4, 24, 32]");
}

}  // namespace
}  // namespace sluice::tools
