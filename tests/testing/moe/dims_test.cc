#include "tests/testing/moe/dims.h"

#include <catch2/catch.hpp>

#include "tests/testing/moe_program.h"

namespace sluice::tools {
namespace {

Buffer& bufferOf(TaskProgram& program, const char* name) {
  for (Buffer& buffer : program.buffers)
    if (buffer.name == name) return buffer;
  FAIL("no buffer " << name);
  return program.buffers.front();
}

TEST_CASE("the sizes of a layer are read from its program") {
  MoeShape shape;
  shape.ranks = 2;
  const Expected<MoeDims> dims = moeDimsOf(buildMoeProgram(shape));
  REQUIRE(dims.ok());
  CHECK(*dims == MoeDims{2, 4, 2, 64, 32, 24});
}

TEST_CASE("a program that is no MoE-FFN layer is refused with the tensor that shows it") {
  TaskProgram program = buildMoeProgram({});
  bufferOf(program, "x").shape[1].size = 31;
  CHECK(moeDimsOf(program).error().message ==
        "tensor 'x': found BF16 [-1, 31], expected BF16 [-1, 32] in a MoE-FFN layer (-1 is T)");
  bufferOf(program, "down_weight").name = "other";
  CHECK(moeDimsOf(program).error().message.find("found no tensor 'down_weight'") != std::string::npos);
}

TEST_CASE("a program with more than the layer has is no MoE-FFN layer") {
  TaskProgram program = buildMoeProgram({});
  for (Family& family : program.families)
    if (family.name == "down_proj") family.tiling.alpha = 0.5f;
  CHECK(moeDimsOf(program).error().message ==
        "program 'moe_ffn' is not a MoE-FFN layer: found family 'down_proj'");
  program = buildMoeProgram({});
  program.buffers.push_back({"bias", DType::kBF16, {{Extent::kFixed, 3}}, Role::kInput, {}});
  CHECK(moeDimsOf(program).error().message ==
        "program 'moe_ffn' is not a MoE-FFN layer: found a tensor 'bias'");
}

}  // namespace
}  // namespace sluice::tools
