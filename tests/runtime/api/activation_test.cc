// Layers with other activations than SwiGLU against double precision.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "runtime/abi/kernels.h"
#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

struct Point {
  ops::ActivationKind kind;
  float limit;
  double tolerance;
};

double worstError(const LayerData& data) {
  double worst = 0;
  for (const tools::OutputError& error : errorsOf(data)) worst = std::max(worst, error.relative);
  return worst;
}

TEST_CASE("layers of every activation agree with double precision on every instruction set") {
  // A gate or up that bf16 rounds across the limit changes the slope of its element from 0 to 1 or back.
  const Point points[] = {
      {ops::ActivationKind::kSwigluClamp, 1.5f, 6e-2}, {ops::ActivationKind::kSwigluClamp, 7, 1.2e-2},
      {ops::ActivationKind::kGeglu, 0, 1.2e-2},        {ops::ActivationKind::kReglu, 0, 1.2e-2},
      {ops::ActivationKind::kSquaredReglu, 0, 1.2e-2}, {ops::ActivationKind::kSwigluOai, 7, 1.2e-2},
      {ops::ActivationKind::kSilu, 0, 1.2e-2},         {ops::ActivationKind::kRelu2, 0, 1.2e-2}};
  MoeShape shape{.ranks = 2, .experts = 8, .topK = 3, .hidden = 75, .intermediate = 51, .maxTokens = 90};
  for (const Point& k : points) {
    shape.activation = k.kind, shape.limit = k.limit;
    auto program = Program::fromTaskProgram(buildMoeProgram(shape));
    INFO((program ? "" : program.error().message));
    REQUIRE(program.ok());
    for (const ops::Isa isa : ops::supportedIsas()) {
      INFO("kind " << static_cast<int>(k.kind) << ", limit " << k.limit << ", " << ops::isaName(isa));
      setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1);
      LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {90, 61}}, .seed = 3});
      REQUIRE(runLayer(*program, {.threads = 2}, data).ok());
      unsetenv("SLUICE_ISA");
      CHECK(data.dims.activation == k.kind);
      CHECK(worstError(data) <= k.tolerance);
      data.dims.activation = k.kind == ops::ActivationKind::kSilu ? ops::ActivationKind::kRelu2
                             : findInfo(k.kind).isGated()         ? ops::ActivationKind::kSwiglu
                                                                  : ops::ActivationKind::kSilu;
      if (k.limit != 7) CHECK(worstError(data) > 3 * 1.2e-2);  // the kind makes a difference
    }
  }
}

TEST_CASE("a program with two activations has no reference") {
  TaskProgram program = buildMoeProgram({});
  for (Family& family : program.families)
    if (family.op == OpKind::kActivation) family.tiling.activation = ActivationKind::kGeglu;
  const auto dims = tools::moeDimsOf(program);
  REQUIRE_FALSE(dims.ok());
  CHECK_THAT(
      dims.error().message,
      Catch::Matchers::Contains("found other activations in 'swiglu' and 'swiglu_grad', expected one"));
}

}  // namespace
}  // namespace sluice
