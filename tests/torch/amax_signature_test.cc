#include <algorithm>
#include <catch2/catch.hpp>

#include "ops/torch/layer_signature.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

TaskProgram layer() {
  MoeShape shape;
  shape.ranks = 2;
  shape.experts = 5;
  return buildMoeProgram(shape);
}

// Adds an input or output [experts, 1] to the first family of an entry.
Buffer& addTensor(TaskProgram& program, const std::string& entry, const std::string& name, Role role) {
  const auto found = std::find_if(program.buffers.begin(), program.buffers.end(),
                                  [&](const Buffer& b) { return b.name == name; });
  const BufferId id{static_cast<uint32_t>(found - program.buffers.begin())};
  if (found == program.buffers.end()) {
    Buffer made;
    made.name = name;
    made.role = role;
    made.shape = {Dim{Extent::kExperts, 0}, Dim{Extent::kFixed, 1}};
    program.buffers.push_back(made);
  }
  for (Family& family : program.families) {
    if (program.at(family.entry).name != entry) continue;
    (role == Role::kInput ? family.reads : family.writes).push_back(id);
    break;
  }
  return program.buffers[id.value];
}

std::string errorOf(const TaskProgram& program) {
  const auto amaxes = describeAmaxInputs(program, 0);
  return amaxes ? "" : amaxes.error().message;
}

}  // namespace

TEST_CASE("a program without delayed scaling has no amaxes") {
  const auto amaxes = describeAmaxInputs(layer(), 0);
  REQUIRE(amaxes.ok());
  CHECK(amaxes->empty());
}

TEST_CASE("amaxes say which entries read and write them, and have the experts of the rank") {
  TaskProgram program = layer();
  addTensor(program, "forward", "rows_x_amax_used", Role::kInput);
  addTensor(program, "backward", "rows_x_amax_used", Role::kInput);
  addTensor(program, "forward", "rows_x_amax", Role::kOutput);
  addTensor(program, "backward", "dy_amax_used", Role::kInput);
  addTensor(program, "backward", "dy_amax", Role::kOutput);
  const auto amaxes = describeAmaxInputs(program, 0);
  REQUIRE(amaxes.ok());
  REQUIRE(amaxes->size() == 2);
  const AmaxSignature &dy = amaxes->at(0), &rows = amaxes->at(1);
  CHECK(dy.name == "dy");
  CHECK(!dy.readByForward);
  CHECK(dy.readByBackward);
  CHECK(!dy.writtenByForward);
  CHECK(dy.writtenByBackward);
  CHECK(rows.name == "rows_x");
  CHECK(rows.used == "rows_x_amax_used");
  CHECK(rows.found == "rows_x_amax");
  CHECK(rows.readByForward);
  CHECK(rows.readByBackward);
  CHECK(rows.writtenByForward);
  CHECK(!rows.writtenByBackward);
  CHECK(rows.shape == std::vector<int64_t>{3, 1});
  CHECK(describeAmaxInputs(program, 1)->at(1).shape == std::vector<int64_t>{2, 1});
  const auto signature = readSignature(program, 0, {"gate_up_weight", "down_weight"});
  REQUIRE(signature.ok());
  CHECK(signature->amaxes.size() == 2);
}

TEST_CASE("amaxes of other types and shapes are refused by name") {
  TaskProgram program = layer();
  addTensor(program, "forward", "rows_x_amax", Role::kOutput);
  CHECK(errorOf(program) == "");  // it measures what it scales by
  CHECK(describeAmaxInputs(program, 0)->at(0).isOfForward());
  addTensor(program, "forward", "rows_x_amax_used", Role::kInput).type = DType::kBF16;
  CHECK(errorOf(program) == "tensor 'rows_x_amax_used' is BF16, expected F32");
  addTensor(program, "forward", "rows_x_amax_used", Role::kInput).type = DType::kF32;
  CHECK(errorOf(program) == "");
  addTensor(program, "forward", "rows_x_amax", Role::kOutput).shape = {Dim{Extent::kFixed, 1}};
  CHECK(errorOf(program) == "tensors 'rows_x_amax_used' and 'rows_x_amax' have other shapes");
  addTensor(program, "forward", "rows_x_amax", Role::kOutput).shape = {Dim{Extent::kRows, 0}};
  CHECK(errorOf(program) == "tensor 'rows_x_amax' has tokens or rows, expected one number per expert");
}

}  // namespace sluice
