// Workspaces: layers that take turns share threads and memory, and give the same bits as layers that share
// none.
#include <catch2/catch.hpp>
#include <thread>

#include "runtime/api/context.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

// With different numbers, sizes and kinds of regions.
std::vector<MoeShape> shapesFor(int ranks) {
  MoeShape wide{.ranks = ranks, .experts = 5, .topK = 3, .hidden = 70, .intermediate = 40, .cores = 5};
  MoeShape narrow{.ranks = ranks, .experts = 4, .topK = 2, .hidden = 16, .intermediate = 24, .cores = 1};
  narrow.fused = true;
  MoeShape grouped{.ranks = ranks, .experts = 6, .topK = 1, .hidden = 33, .intermediate = 90};
  grouped.groupSlots = 2;
  return {narrow, wide, grouped};
}

struct Layer {
  Program program;
  LayerData data;
  uint64_t alone = 0;  // hash of the outputs, with a context of its own
};

std::vector<Layer> layersFor(int ranks) {
  std::vector<Layer> layers;
  for (const MoeShape& shape : shapesFor(ranks)) {
    auto program = Program::fromTaskProgram(buildMoeProgram(shape));
    REQUIRE(program.ok());
    const std::vector<int64_t> tokens = {40, 0, 13, 64};
    const tools::InputsSpec spec{.tokens = {.counts = {tokens.begin(), tokens.begin() + ranks}}, .seed = 3};
    LayerData alone = makeLayerData(program->tables(), spec);
    REQUIRE(runLayer(*program, {.threads = 2}, alone).ok());
    layers.push_back({*program, makeLayerData(program->tables(), spec), hashOutputs(alone)});
  }
  return layers;
}

// Every rank runs all layers in turn, repeatedly; the last layer is added after others have run.
Status runInTurn(std::vector<Layer>& layers, Transport& transport, ExecutorKind executor) {
  auto workspace = Workspace::create(transport, {.threads = 2});
  if (!workspace) return workspace.error();
  std::vector<std::unique_ptr<Context>> contexts;
  for (int round = 0; round < 4; ++round) {
    while (contexts.size() < (round < 2 ? 1 : layers.size())) {
      ContextOptions options{.executor = executor};
      options.workspace = *workspace;
      auto context = Context::create(layers[contexts.size()].program, transport, options);
      if (!context) return context.error();
      contexts.push_back(std::move(*context));
    }
    for (size_t i = 0; i < contexts.size(); ++i) {
      if (Status bound = bindAll(layers[i].data, transport.rank(), *contexts[i]); !bound) return bound;
      if (Status ran = contexts[i]->run("forward"); !ran) return ran;
    }
    // the forward steps of other layers lie between
    for (size_t i = contexts.size(); i-- > 0;)
      if (Status ran = contexts[i]->run("backward"); !ran) return ran;
  }
  return {};
}

void checkInTurn(int ranks, const FaultPlan& plan, ExecutorKind executor) {
  std::vector<Layer> layers = layersFor(ranks);
  FaultyRanks transports(ranks, plan);
  std::vector<Status> results(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(
        [&, rank] { results[rank] = runInTurn(layers, transports.transport(rank), executor); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) {
    INFO(toText(plan) << ": " << (result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    INFO(ranks << " ranks, layer " << i << ", " << toText(plan));
    CHECK(hashOutputs(layers[i].data) == layers[i].alone);
  }
}

TEST_CASE("layers that take turns in a workspace have the bits of layers with memory of their own") {
  for (const int ranks : {1, 2, 4}) {
    checkInTurn(ranks, {}, ExecutorKind::kParallel);
    checkInTurn(ranks, {}, ExecutorKind::kSerial);
  }
}

TEST_CASE("a layer's late rows never reach the next layer's, however ranks are delayed") {
  for (const int ranks : {2, 4})
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      FaultPlan plan{.seed = seed, .delay = 8, .reorder = 8, .duplicate = 5};
      plan.hide = seed % 2 == 1;
      checkInTurn(ranks, plan, ExecutorKind::kParallel);
    }
}

TEST_CASE("what layers need together is what the largest needs") {
  std::vector<Layer> layers = layersFor(1);
  const auto bytesOf = [&](const std::vector<size_t>& which) {
    LocalRanks ranks(1);
    auto workspace = Workspace::create(ranks.transport(0), {.threads = 3, .pin = false});
    REQUIRE(workspace.ok());
    CHECK((*workspace)->threads() == 3);
    CHECK((*workspace)->bytes() == 0);
    std::vector<std::unique_ptr<Context>> contexts;
    for (const size_t i : which) {
      ContextOptions options;
      options.workspace = *workspace;
      auto context = Context::create(layers[i].program, ranks.transport(0), options);
      REQUIRE(context.ok());
      contexts.push_back(std::move(*context));
    }
    int64_t before = 0;
    for (size_t i = 0; i < which.size(); ++i) {
      REQUIRE(bindAll(layers[which[i]].data, 0, *contexts[i]).ok());
      REQUIRE(contexts[i]->run("forward").ok());
      CHECK((*workspace)->bytes() >= before);
      before = (*workspace)->bytes();
    }
    return before;
  };
  const int64_t wide = bytesOf({1});
  CHECK(wide > 0);
  CHECK(bytesOf({1, 1, 1}) == wide);
  CHECK(bytesOf({1, 0}) < wide + bytesOf({0}));
}

TEST_CASE("a workspace is for the contexts of one transport") {
  const std::vector<Layer> layers = layersFor(1);
  LocalRanks ranks(1), others(1);
  CHECK(Workspace::create(ranks.transport(0), {.threads = -1}).error().message ==
        "found -1 threads, expected 1 to 4096 (or 0 for this machine's share)");
  auto workspace = Workspace::create(ranks.transport(0), {.threads = 1});
  REQUIRE(workspace.ok());
  ContextOptions options;
  options.workspace = *workspace;
  CHECK(Context::create(layers[0].program, others.transport(0), options).error().message ==
        "the workspace was made for another transport");
}

}  // namespace
}  // namespace sluice
