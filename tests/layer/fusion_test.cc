// What is fused changes the families of a program and none of its bits.
#include <catch2/catch.hpp>

#include "runtime/program/codec.h"
#include "tests/layer/graph_run.h"

namespace sluice {
namespace {

using Fuse = std::vector<std::string>;

const tools::InputsSpec kSpec{
    .tokens = {.counts = {40, 0, 23}}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 5};

Program compileFile(const std::string& path, const CompileOptions& options) {
  const auto target = loadTarget("targets/cpu.json", {});
  if (!target) FAIL(target.error().message);
  auto tables = compile(path, *target, options);
  if (!tables) FAIL(tables.error().message);
  auto program = Program::fromBytes(encode(*tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

// Hashes all outputs of all ranks; checks that fusing leaves `families` families.
uint64_t bitsOf(const std::string& path, CompileOptions options, const Fuse& fuse, size_t families) {
  options.fuse = fuse;
  const Program program = compileFile(path, options);
  CHECK(program.tables().families.size() == families);
  LayerData data = makeGraphData(program, kSpec);
  runGraph(program, ExecutorKind::kParallel, data);
  return hashOutputs(data);
}

TEST_CASE("the layer and its gradients have the same bits however it is fused, for tiles of any size") {
  for (const auto& [tile, activation] :
       {std::pair(0, "swiglu"), {16, "swiglu"}, {48, "swiglu"}, {16, "relu2"}, {48, "silu"}}) {
    const CompileOptions options{.sets = {{"ep", 3},
                                          {"experts", 6},
                                          {"top_k", 2},
                                          {"hidden", 72},
                                          {"intermediate", 56},
                                          {"max_tokens", 64}},
                                 .words = {{"activation", activation}},
                                 .cores = 3,
                                 .slotRows = 16,
                                 .tile = tile};
    const std::string train = "graphs/moe_ffn/train.json";
    const uint64_t plain = bitsOf(train, options, {"none"}, 14);
    CHECK(bitsOf(train, options, {}, 12) == plain);
    CHECK(bitsOf(train, options, {"activation"}, 13) == plain);
    CHECK(bitsOf(train, options, {"activation-grad"}, 13) == plain);
    CHECK(bitsOf(train, options, {"scale"}, 14) == plain);
  }
}

TEST_CASE("a layer with a dense branch and scales has the same bits however it is fused") {
  const CompileOptions options{.cores = 3, .slotRows = 16, .tile = 32, .trainable = {{"all"}}};
  const std::string mixed = "tests/layer/mixed.mlir";
  const uint64_t plain = bitsOf(mixed, options, {"none"}, 36);
  CHECK(bitsOf(mixed, options, {}, 29) == plain);
  CHECK(bitsOf(mixed, options, {"activation"}, 35) == plain);
  CHECK(bitsOf(mixed, options, {"activation-grad"}, 34) == plain);
  CHECK(bitsOf(mixed, options, {"scale"}, 32) == plain);
}

TEST_CASE("a fused layer with a dense branch computes what it says") {
  const CompileOptions options{.cores = 2, .slotRows = 32, .trainable = {{"all"}}};
  const Program program = compileFile("tests/layer/mixed.mlir", options);
  LayerData data = makeGraphData(program, kSpec);
  runGraph(program, ExecutorKind::kSerial, data);
  for (const tools::OutputError& error : errorsOfGraph(program, data)) {
    INFO(error.name);
    CHECK(error.relative <= 1.2e-2);
  }
}

}  // namespace
}  // namespace sluice
