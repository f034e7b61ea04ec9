// Sets of saved tensors: as many forward steps may wait for their backward steps as there are sets.
#include <catch2/catch.hpp>

#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

// Each with its own tokens, routing and tensors.
std::vector<LayerData> listBatches(const Program& program, int count) {
  std::vector<LayerData> batches;
  for (int batch = 0; batch < count; ++batch) {
    std::vector<int64_t> tokens;
    for (int rank = 0; rank < program.ranks(); ++rank) tokens.push_back((17 * batch + 23 * rank) % 50 + 5);
    batches.push_back(makeLayerData(
        program.tables(), {.tokens = {.counts = tokens}, .seed = static_cast<uint32_t>(batch + 1)}));
  }
  return batches;
}

struct Part {
  bool forward = true;
  int batch = 0;
};

// Batch b uses set b; the last runs are those of the outputs.
void checkOrder(const MoeShape& shape, ExecutorKind executor, const std::vector<Part>& parts, int count) {
  const Program program = programOf(buildMoeProgram(shape));
  std::vector<LayerData> batches = listBatches(program, count);
  const ContextOptions options{.threads = 2, .executor = executor};
  std::vector<uint64_t> alone;
  std::vector<LayerData> same = listBatches(program, count);
  for (LayerData& data : same) {
    REQUIRE(runLayer(program, options, data).ok());
    alone.push_back(hashOutputs(data));
  }
  const auto results = runRanks(program, options, [&](int rank, Context& context) -> Status {
    for (const Part& part : parts) {
      if (Status bound = bindAll(batches[part.batch], rank, context); !bound) return bound;
      const SavedSet set{static_cast<uint32_t>(part.batch)};
      if (Status ran = context.run(part.forward ? "forward" : "backward", set); !ran) return ran;
    }
    return {};
  });
  for (const Status& result : results) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
  for (int batch = 0; batch < count; ++batch) {
    INFO("batch " << batch << " of " << shape.ranks << " ranks");
    CHECK(hashOutputs(batches[batch]) == alone[batch]);
  }
}

TEST_CASE(
    "backward steps of several sets have the bits of contexts of their own, in any order and repeated") {
  const std::vector<std::vector<Part>> orders = {
      {{true, 0}, {true, 1}, {false, 0}, {false, 1}},
      {{true, 0}, {true, 1}, {false, 1}, {false, 0}},
      {{true, 0}, {true, 1}, {false, 0}, {false, 0}, {false, 1}, {false, 0}},
      {{true, 1}, {true, 2}, {false, 1}, {true, 0}, {true, 1}, {false, 2}, {false, 1}, {false, 0}}};
  for (const int ranks : {1, 2, 3})
    for (const auto& order : orders) {
      MoeShape shape{.ranks = ranks, .experts = 2 * ranks + 1, .topK = 2};
      checkOrder(shape, ExecutorKind::kParallel, order, &order == &orders.back() ? 3 : 2);
      shape.fused = true;
      checkOrder(shape, ExecutorKind::kSerial, order, &order == &orders.back() ? 3 : 2);
    }
}

TEST_CASE("a set whose forward has not run is named, and so is one that there cannot be") {
  const Program program = programOf(buildMoeProgram({.ranks = 1}));
  LocalRanks ranks(1);
  auto context = Context::create(program, ranks.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {10}}});
  REQUIRE(bindAll(data, 0, **context).ok());
  REQUIRE((*context)->run("forward", {2}).ok());
  CHECK((*context)->run("backward", {3}).error().message ==
        "rank 0: entry 'backward' uses what entry 'forward' saves in saved set 3, which has not run on that "
        "set");
  CHECK((*context)->run("forward", {1024}).error().message == "saved set 1024, expected 0 to 1023");
  CHECK((*context)->run("backward", {2}).ok());

  LayerData shorter = makeLayerData(program.tables(), {.tokens = {.counts = {9}}});
  REQUIRE(bindAll(shorter, 0, **context).ok());
  CHECK((*context)->run("backward", {2}).error().message ==
        "rank 0: entry 'backward' has 9 tokens, but entry 'forward' ran with 10 in saved set 2");
}

TEST_CASE("ranks may number their sets differently, but may not take different ones to a step") {
  const Program program = programOf(buildMoeProgram({.ranks = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  LayerData alone = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  std::vector<std::string> messages(2);
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    const SavedSet mine{rank == 0 ? 5u : 9u};
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (Status ran = context.run("forward", mine); !ran) return ran;
    if (Status ran = context.run("forward", {1}); !ran) return ran;
    const Status other = context.run("backward", rank == 0 ? mine : SavedSet{1});
    messages[rank] = other ? "" : other.error().message;
    return context.run("backward", mine);
  });
  for (const Status& result : results) {
    INFO((result ? "" : result.error().message));
    CHECK(result.ok());
  }
  for (const std::string& message : messages)
    CHECK(message ==
          "rank 1 runs entry 'backward' on other memory (saved set 1) than rank 0 (saved set 5): ranks must "
          "make contexts, and first use their saved sets, in the same order");
  CHECK(hashOutputs(data) == hashOutputs(alone));
}

TEST_CASE("the memory of sets is told, and grows with them only") {
  const Program program = programOf(buildMoeProgram({.ranks = 1}));
  LocalRanks ranks(1);
  auto context = Context::create(program, ranks.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {40}}});
  REQUIRE(bindAll(data, 0, **context).ok());
  CHECK((*context)->savedBytes() == 0);
  REQUIRE((*context)->run("forward").ok());
  const int64_t one = (*context)->savedBytes();
  // at least the rows that were sent here
  CHECK(one >= 40 * 2 * 32 * 2);
  REQUIRE((*context)->run("forward", {7}).ok());
  CHECK((*context)->savedBytes() == 2 * one);
  REQUIRE((*context)->run("forward", {7}).ok());
  CHECK((*context)->savedBytes() == 2 * one);
  LayerData shorter = makeLayerData(program.tables(), {.tokens = {.counts = {4}}});
  REQUIRE(bindAll(shorter, 0, **context).ok());
  REQUIRE((*context)->run("forward", {7}).ok());
  CHECK((*context)->savedBytes() == 2 * one);
}

}  // namespace
}  // namespace sluice
