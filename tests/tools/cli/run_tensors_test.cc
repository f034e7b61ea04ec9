#include "tools/cli/run_tensors.h"

#include <catch2/catch.hpp>

#include "tests/testing/moe_program.h"
#include "tools/evaluate/output_errors.h"

namespace sluice::tools {
namespace {

std::vector<std::string> names(const TaskProgram& program, const std::vector<BufferId>& ids) {
  std::vector<std::string> result;
  for (BufferId id : ids) result.push_back(program.at(id).name);
  return result;
}

TEST_CASE("an entry needs the inputs that its families read, and writes their outputs") {
  const TaskProgram program = buildMoeProgram({});
  const EntryTensors forward = listEntryTensors(program, *findEntries(program, "forward"));
  CHECK(names(program, forward.inputs) ==
        std::vector<std::string>{"x", "expert_ids", "expert_weights", "gate_up_weight", "down_weight"});
  CHECK(names(program, forward.outputs) == std::vector<std::string>{"y"});
  const EntryTensors both = listEntryTensors(program, *findEntries(program, ""));
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
  std::vector<BufferId> outputs = listEntryTensors(program, *findEntries(program, "")).outputs;
  const TensorMap made = makeOutputs(program, 0, outputs, 7);
  CHECK(made.size() == 5);
  CHECK(made.at("y").shape() == std::vector<int64_t>{7, 32});
  CHECK(made.at("down_weight_grad").shape() == std::vector<int64_t>{4, 24, 32});
  program.buffers[outputs[0].value].shape[0].extent = Extent::kRows;
  CHECK(makeOutputs(program, 0, outputs, 7).size() == 4);
}

TEST_CASE("a file has as many experts as its rank owns") {
  const TaskProgram program = buildMoeProgram({.ranks = 2, .experts = 5});
  const EntryTensors all = listEntryTensors(program, *findEntries(program, ""));
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

// A program without expert ids and with one input of rows.
TaskProgram withoutIds(TokenHolders tokens) {
  TaskProgram program = buildMoeProgram({.ranks = 3, .experts = 3});
  for (Entry& entry : program.entries) entry.expertIds = {};
  program.mesh = {1, 3, tokens};
  program.experts = 1;
  program.maxTokens = 20;
  program.buffers[0].shape[0].extent = Extent::kRows;
  return program;
}

TEST_CASE("where nothing shows the tokens of a rank, ranks share the rows of all") {
  const TaskProgram own = withoutIds(TokenHolders::kOwn), same = withoutIds(TokenHolders::kSame);
  const std::string name = own.buffers[0].name;
  const auto tokensOf = [&](const TaskProgram& program, int rank, int64_t rows,
                            const std::vector<int64_t>& tokens = {}) {
    TensorMap file;
    file.emplace(name, Tensor(DType::kBF16, {rows, program.buffers[0].shape[1].size}));
    return checkInputs(program, rank, {{0}}, file, tokens);
  };
  CHECK(*tokensOf(own, 0, 17) == 6);
  CHECK(*tokensOf(own, 1, 17) == 6);
  CHECK(*tokensOf(own, 2, 17) == 5);
  CHECK(*tokensOf(own, 2, 0) == 0);
  CHECK(*tokensOf(same, 2, 17) == 17);
  CHECK(*tokensOf(own, 1, 17, {0, 2, 15}) == 2);
  CHECK(tokensOf(own, 1, 17, {0, 2, 14}).error().message ==
        "tensor '" + name + "': found 17 rows, expected 16, those of the tokens of all ranks");
  CHECK(*tokensOf(own, 1, 60) == 20);
  CHECK(tokensOf(own, 1, 61).error().message ==
        "tensor '" + name + "': found 61 rows, expected at most 60, from max_tokens of 3 ranks");
  CHECK(tokensOf(same, 1, 21).error().message ==
        "tensor '" + name + "': found 21 rows, expected at most 20, from max_tokens of 1 ranks");
  TaskProgram two = own;
  two.experts = 2;
  CHECK(*tokensOf(two, 1, 8) == 1);
  CHECK(tokensOf(two, 1, 7).error().message ==
        "tensor '" + name + "': found 7 rows, expected a multiple of 2, the experts of the rank");
}

TEST_CASE("tokens that are known must be those of every tensor of tokens") {
  const TaskProgram program = buildMoeProgram({});
  TensorMap file;
  file.emplace("x", Tensor(DType::kBF16, {7, 32}));
  const std::vector<BufferId> x = {listEntryTensors(program, *findEntries(program, "forward")).inputs[0]};
  CHECK(*checkInputs(program, 0, x, file, {7}) == 7);
  CHECK(checkInputs(program, 0, x, file, {8}).error().message ==
        "tensor 'x': found 7 tokens, expected 8, the tokens of rank 0");
}

TEST_CASE("results show the tokens of ranks if no input does") {
  const TaskProgram program = buildMoeProgram({});
  std::vector<TensorMap> outputs(2);
  outputs[0].emplace("y", Tensor(DType::kBF16, {7, 32}));
  CHECK(tokensOfOutputs(program, {}, outputs).empty());
  outputs[1].emplace("y", Tensor(DType::kBF16, {3, 32}));
  CHECK(tokensOfOutputs(program, {}, outputs) == std::vector<int64_t>{7, 3});
  const EntryTensors all = listEntryTensors(program, *findEntries(program, ""));
  CHECK(tokensOfOutputs(program, all.inputs, outputs).empty());
}

TEST_CASE("the operations of a row are 6 H I forward and 12 H I backward") {
  const TaskProgram program = buildMoeProgram({});
  CHECK(countFlops(program, {0}, 10, 7) == 10 * 6 * 32 * 24);
  CHECK(countFlops(program, {1}, 10, 7) == 10 * 12 * 32 * 24);
}

TEST_CASE("a gradient that is added to begins with what the file has, or with 0") {
  TaskProgram program = buildMoeProgram({});
  std::vector<BufferId> outputs = listEntryTensors(program, *findEntries(program, "")).outputs;
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
