// Where the compiler puts buffers in memory changes none of the bits that a program computes.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/layer/graph_run.h"
#include "tests/testing/packed_regions.h"

namespace sluice {
namespace {

uint64_t bitsOf(const Program& program, ExecutorKind executor) {
  const tools::InputsSpec spec{
      .tokens = {.counts = {40, 0, 64}}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 3};
  LayerData data = makeGraphData(program, spec);
  runGraph(program, executor, data);
  return hashOutputs(data);
}

TEST_CASE("a planned program has the bits of one whose buffers share no memory") {
  int beside = 0;
  for (const char* graph : {"two_gmms.json", "shared_expert.json", "lora.json"})
    for (const char* keep : {"all", "minimal"})
      for (const std::vector<std::string>& fuse : {std::vector<std::string>{}, {"none"}}) {
        INFO(graph << ", keep " << keep << (fuse.empty() ? "" : ", not fused"));
        const Program planned = compileGraph(graph, {.sets = {{"ep", 3},
                                                              {"experts", 6},
                                                              {"top_k", 2},
                                                              {"hidden", 256},
                                                              {"intermediate", 96},
                                                              {"max_tokens", 64}},
                                                     .cores = 3,
                                                     .slotRows = 16,
                                                     .trainable = {{"all"}},
                                                     .keep = keep,
                                                     .fuse = fuse});
        const TaskProgram& tables = planned.tables();
        beside += std::any_of(tables.buffers.begin(), tables.buffers.end(),
                              [](const Buffer& buffer) { return buffer.offset != 0; });
        const Program spread = programOf(spreadRegions(tables)), packed = programOf(packRegions(tables));
        REQUIRE(spread.tables().regions.size() > tables.regions.size());
        const uint64_t bits = bitsOf(spread, ExecutorKind::kSerial);
        CHECK(bitsOf(planned, ExecutorKind::kSerial) == bits);
        CHECK(bitsOf(planned, ExecutorKind::kParallel) == bits);
        CHECK(bitsOf(packed, ExecutorKind::kParallel) == bits);
      }
  CHECK(beside > 2);
}

}  // namespace
}  // namespace sluice
