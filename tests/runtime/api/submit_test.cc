// Submitted steps: their order, their tensors, and the effect of cancelling them.
#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "runtime/api/context.h"
#include "tests/testing/forwarding_transport.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

Program layerOn(int ranks) {
  auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = ranks, .experts = 4}));
  REQUIRE(program.ok());
  return *program;
}

std::vector<int64_t> tokensFor(int ranks, int batch) {
  std::vector<int64_t> tokens;
  for (int rank = 0; rank < ranks; ++rank) tokens.push_back((19 * batch + 31 * rank) % 60 + 1);
  return tokens;
}

LayerData batchOf(const Program& program, int batch) {
  return makeLayerData(program.tables(), {.tokens = {.counts = tokensFor(program.ranks(), batch)},
                                          .seed = static_cast<uint32_t>(batch + 1)});
}

TEST_CASE("steps that are submitted run in order, with the tensors bound at that time") {
  for (const int ranks : {1, 2}) {
    const Program program = layerOn(ranks);
    std::vector<LayerData> batches, alone;
    for (int batch = 0; batch < 4; ++batch) {
      batches.push_back(batchOf(program, batch));
      alone.push_back(batchOf(program, batch));
      REQUIRE(runLayer(program, {.threads = 1}, alone.back()).ok());
    }
    const auto results = runRanks(program, {.threads = 2}, [&](int rank, Context& context) -> Status {
      std::vector<PendingStep> steps;
      for (const char* entry : {"forward", "backward"})
        for (uint32_t batch = 0; batch < 4; ++batch) {
          if (Status bound = bindAll(batches[batch], rank, context); !bound) return bound;
          auto step = context.submit(entry, {batch});
          if (!step) return step.error();
          steps.push_back(std::move(*step));
        }
      // behind all of them
      if (Status ran = context.run("backward", {3}); !ran) return ran;
      for (PendingStep& step : steps)
        if (!step.isDone()) return Error{"a later step was done before"};
      for (size_t i = steps.size(); i-- > 0;)
        if (Status done = steps[i].wait(); !done) return done;
      return {};
    });
    for (const Status& result : results) {
      INFO(messageOf(result));
      REQUIRE(result.ok());
    }
    for (int batch = 0; batch < 4; ++batch) CHECK(hashOutputs(batches[batch]) == hashOutputs(alone[batch]));
  }
}

TEST_CASE("steps of several layers and threads are served in the order of a workspace") {
  const Program program = layerOn(1);
  LocalRanks ranks(1);
  auto workspace = Workspace::create(ranks.transport(0), {.threads = 2});
  REQUIRE(workspace.ok());
  LayerData alone = batchOf(program, 0);
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  std::vector<LayerData> outputs;
  for (int layer = 0; layer < 3; ++layer) outputs.push_back(batchOf(program, 0));
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  for (int layer = 0; layer < 3; ++layer)
    threads.emplace_back([&, layer] {
      ContextOptions options;
      options.workspace = *workspace;
      auto context = Context::create(program, ranks.transport(0), options);
      if (!context || !bindAll(outputs[layer], 0, **context)) return;
      for (int round = 0; round < 10; ++round) {
        auto forward = (*context)->submit("forward");
        const Status backward = (*context)->run("backward");
        messages[layer] += messageOf(forward->wait()) + messageOf(backward);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int layer = 0; layer < 3; ++layer) {
    CHECK(messages[layer] == "");
    CHECK(hashOutputs(outputs[layer]) == hashOutputs(alone));
  }
}

// Notices when the rank has posted its counts, which means that its step runs.
class PostingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override {
    real_.post(rank, handle, offset, value);
    posts_.fetch_add(1);
  }
  void awaitPost(int before) const {
    while (posts_.load() <= before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  int posts() const { return posts_.load(); }

 private:
  std::atomic<int> posts_{0};
};

TEST_CASE("a step that has not begun is cancelled at once, and fails in its place at the other ranks") {
  const Program program = layerOn(2);
  LayerData data = batchOf(program, 1), alone = batchOf(program, 1);
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  LocalRanks ranks(2);
  std::vector<std::unique_ptr<Context>> contexts;
  for (int rank = 0; rank < 2; ++rank) {
    auto context = Context::create(program, ranks.transport(rank), {.threads = 1});
    REQUIRE(context.ok());
    REQUIRE(bindAll(data, rank, **context).ok());
    contexts.push_back(std::move(*context));
  }
  auto forward = contexts[0]->submit("forward");
  auto unwanted = contexts[0]->submit("forward", {1});
  auto backward = contexts[0]->submit("backward");
  REQUIRE((forward.ok() && unwanted.ok() && backward.ok()));
  // rank 1 has not come, so that none of them is over
  unwanted->cancel();
  CHECK(unwanted->isDone());
  CHECK(messageOf(unwanted->wait()) == "the step of entry 'forward' was cancelled");
  CHECK_FALSE(backward->isDone());
  CHECK(messageOf(contexts[1]->run("forward")) == "");
  CHECK(messageOf(contexts[1]->run("forward", {1})) == "rank 0: the step of entry 'forward' was cancelled");
  CHECK(messageOf(contexts[1]->run("backward")) == "");
  CHECK(messageOf(forward->wait()) == "");
  CHECK(messageOf(backward->wait()) == "");
  backward->cancel();  // of no effect
  CHECK(messageOf(backward->wait()) == "");
  CHECK(hashOutputs(data) == hashOutputs(alone));
}

TEST_CASE("a step that runs is aborted at all ranks when it is cancelled") {
  const Program program = layerOn(2);
  LayerData data = batchOf(program, 1);
  LocalRanks ranks(2);
  PostingTransport posting(ranks.transport(0));
  auto first = Context::create(program, posting, {.threads = 1});
  auto second = Context::create(program, ranks.transport(1), {.threads = 1});
  REQUIRE((first.ok() && second.ok()));
  for (int rank = 0; rank < 2; ++rank) REQUIRE(bindAll(data, rank, rank == 0 ? **first : **second).ok());
  const int before = posting.posts();
  auto step = (*first)->submit("forward");
  REQUIRE(step.ok());
  posting.awaitPost(before);
  CHECK_FALSE(step->isDone());
  step->cancel();
  const std::string message = "rank 0: the step of entry 'forward' was cancelled";
  CHECK_THAT(messageOf(step->wait()), Catch::Matchers::Contains(message));
  CHECK_THAT(messageOf((*second)->run("forward")), Catch::Matchers::Contains(message));
  CHECK(messageOf((*first)->run("forward")) == "an earlier step failed: " + message);
}

TEST_CASE("contexts, steps, workspaces and what holds them may end in any order") {
  const Program program = layerOn(1);
  LayerData data = batchOf(program, 1);
  for (int order = 0; order < 4; ++order) {
    LocalRanks ranks(1);
    auto workspace = Workspace::create(ranks.transport(0), {.threads = 2});
    REQUIRE(workspace.ok());
    ContextOptions options;
    options.workspace = *workspace;
    auto created = Context::create(program, ranks.transport(0), options);
    REQUIRE(created.ok());
    options.workspace.reset();
    std::unique_ptr<Context> context = std::move(*created);
    REQUIRE(bindAll(data, 0, *context).ok());
    std::optional<PendingStep> step;
    for (int i = 0; i < 3; ++i) {
      auto next = context->submit("forward");
      REQUIRE(next.ok());
      // what was there is waited for
      step = std::move(*next);
    }
    if (order % 2 == 0) workspace->reset();
    if (order < 2) context.reset();
    if (order == 2) step->cancel();
    if (order < 2) CHECK(step->isDone());
    if (order != 2) CHECK(messageOf(step->wait()) == "");
    step.reset();
    context.reset();
  }
}

TEST_CASE("a step that cannot be is refused when it is submitted") {
  const Program program = layerOn(1);
  LocalRanks ranks(1);
  auto context = Context::create(program, ranks.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  CHECK((*context)->submit("sideways").error().message ==
        "the program has no entry 'sideways', expected one of: forward, backward");
  auto unbound = (*context)->submit("forward");
  REQUIRE(unbound.ok());
  CHECK(messageOf(unbound->wait()) == "rank 0: entry 'forward' needs tensor 'x', which is not bound");
}

}  // namespace
}  // namespace sluice
