#include "tools/moe/dims.h"

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

}  // namespace
}  // namespace sluice::tools
