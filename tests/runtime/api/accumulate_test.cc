// Weight gradients that accumulate: micro-batches add up in the caller's tensors.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "runtime/abi/kernels.h"
#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

constexpr const char* kGradients[] = {"gate_up_weight_grad", "down_weight_grad"};

TaskProgram accumulating(TaskProgram program) {
  for (Family& family : program.families)
    if (family.op == OpKind::kGmmWeightGrad) family.tiling.flags |= 1;
  return program;
}

// Few tokens for many experts: some have rows in one micro-batch only, or in none.
LayerData microBatch(const Program& program, uint32_t seed) {
  return makeLayerData(
      program.tables(),
      {.tokens = {.counts = {5, 0, 9}}, .routing = {tools::RoutingKind::kUniform, 1.2}, .seed = seed});
}

float start(int64_t element) { return static_cast<float>(element % 17) * 0.25f - 2; }

TEST_CASE("gradients of micro-batches accumulate to the sum of their gradients on every instruction set") {
  const MoeShape shape{
      .ranks = 3, .experts = 48, .topK = 2, .hidden = 37, .intermediate = 21, .maxTokens = 16};
  auto writing = Program::fromTaskProgram(buildMoeProgram(shape));
  auto adding = Program::fromTaskProgram(accumulating(buildMoeProgram(shape)));
  REQUIRE(writing.ok());
  REQUIRE(adding.ok());
  for (const ops::Isa isa : ops::supportedIsas()) {
    setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1);
    LayerData first = microBatch(*writing, 1), second = microBatch(*writing, 2);
    LayerData firstAdded = microBatch(*adding, 1), secondAdded = microBatch(*adding, 2);
    REQUIRE(runLayer(*writing, {.threads = 2}, first).ok());
    REQUIRE(runLayer(*writing, {.threads = 2}, second).ok());

    for (auto& outputs : firstAdded.outputs)
      for (const char* name : kGradients)
        for (int64_t i = 0; i < outputs.at(name).elements(); ++i) outputs.at(name).as<float>()[i] = start(i);
    REQUIRE(runLayer(*adding, {.threads = 2}, firstAdded).ok());
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (const char* name : kGradients)
        secondAdded.outputs[rank].at(name) = std::move(firstAdded.outputs[rank].at(name));
    REQUIRE(runLayer(*adding, {.threads = 2}, secondAdded).ok());
    unsetenv("SLUICE_ISA");

    for (int rank = 0; rank < shape.ranks; ++rank)
      for (const char* name : kGradients) {
        INFO(ops::isaName(isa) << ", rank " << rank << ", " << name);
        const float* one = first.outputs[rank].at(name).as<float>();
        const float* two = second.outputs[rank].at(name).as<float>();
        const float* sum = secondAdded.outputs[rank].at(name).as<float>();
        int64_t wrong = 0, untouched = 0;
        for (int64_t i = 0; i < secondAdded.outputs[rank].at(name).elements(); ++i) {
          wrong += sum[i] != (start(i) + one[i]) + two[i];
          untouched += one[i] == 0 && two[i] == 0;
        }
        CHECK(wrong == 0);
        CHECK(untouched > 0);  // experts without rows
        CHECK(untouched < secondAdded.outputs[rank].at(name).elements());
      }
    // what does not accumulate is as it was
    for (int rank = 0; rank < shape.ranks; ++rank)
      CHECK(std::memcmp(second.outputs[rank].at("dx").data(), secondAdded.outputs[rank].at("dx").data(),
                        second.outputs[rank].at("dx").bytes()) == 0);
  }
}

}  // namespace
}  // namespace sluice
