// More threads than the system has, and invalid numbers of threads.
#include <catch2/catch.hpp>
#include <limits>
#include <optional>

#include "tests/runtime/api/c_layer.h"
#include "tests/testing/scarce_threads.h"

namespace sluice {
namespace {

constexpr int kThreads = 5;
constexpr int kStarted = kThreads - 1;  // one is the caller

std::string tooFew(int started) {
  return "started " + std::to_string(started) + " of " + std::to_string(kStarted) +
         " threads for the workers of a rank: Resource temporarily unavailable";
}

bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

Program programOf(int ranks) {
  auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = ranks, .experts = 4, .cores = 8}));
  REQUIRE(program.ok());
  return *program;
}

TEST_CASE("a workspace for whose workers there are too few threads is an error, and may be tried again") {
  const int before = threadsOfProcess();
  LocalRanks ranks(1);
  for (int left = 0; left < kStarted; ++left) {
    const ScarceThreads scarce(left);
    const auto workspace = Workspace::create(ranks.transport(0), {.threads = kThreads});
    REQUIRE_FALSE(workspace.ok());
    CHECK(begins(workspace.error().message, tooFew(left)));
    CHECK(threadsOfProcess() == before);
  }
  CHECK_FALSE(ranks.transport(0).isAborted());
  const auto workspace = Workspace::create(ranks.transport(0), {.threads = kThreads});
  REQUIRE(workspace.ok());
  CHECK((*workspace)->threads() == kThreads);
}

TEST_CASE("a context for whose workers there are too few threads is an error at all ranks") {
  const Program program = programOf(2);
  const int before = threadsOfProcess();
  for (int left = 0; left < kStarted; ++left) {
    LocalRanks ranks(2);
    auto other = Context::create(program, ranks.transport(1), {.threads = 1});
    REQUIRE(other.ok());
    {
      const ScarceThreads scarce(left);
      const auto context = Context::create(program, ranks.transport(0), {.threads = kThreads});
      REQUIRE_FALSE(context.ok());
      CHECK(begins(context.error().message, tooFew(left)));
    }
    const Status ran = (*other)->run("forward");
    REQUIRE_FALSE(ran.ok());
    CHECK(begins(ran.error().message, "rank 0: " + tooFew(left)));
    other->reset();
    CHECK(threadsOfProcess() == before);
  }
}

TEST_CASE("a submitted step for which there is no thread fails at all ranks, and the next one is right") {
  const Program program = programOf(2);
  const auto layerData = [&] { return makeLayerData(program.tables(), {.tokens = {.counts = {30, 17}}}); };
  LayerData data = layerData(), alone = layerData();
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  LocalRanks ranks(2);
  std::vector<std::unique_ptr<Context>> contexts;
  for (int rank = 0; rank < 2; ++rank) {
    contexts.push_back(std::move(*Context::create(program, ranks.transport(rank), {.threads = 2})));
    REQUIRE(bindAll(data, rank, *contexts.back()).ok());
  }
  const std::string why = "no thread for submitted steps: Resource temporarily unavailable";
  // started before: the one that runs a step while the other has no thread
  Status ran;
  std::atomic<bool> begin{false};
  std::thread other([&] {
    while (!begin.load()) std::this_thread::yield();
    ran = contexts[1]->run("forward");
  });
  {
    const ScarceThreads scarce(0);
    begin = true;
    const auto step = contexts[0]->submit("forward");
    REQUIRE_FALSE(step.ok());
    CHECK(step.error().message == why);
    CHECK(scarce.refused() == 1);
  }
  other.join();
  REQUIRE_FALSE(ran.ok());
  CHECK(ran.error().message == "rank 0: " + why);
  for (const char* entry : {"forward", "backward"}) {
    std::vector<PendingStep> steps;
    for (auto& context : contexts) {
      auto step = context->submit(entry);
      REQUIRE(step.ok());
      steps.push_back(std::move(*step));
    }
    for (PendingStep& step : steps) REQUIRE(step.wait().ok());
  }
  CHECK(hashOutputs(data) == hashOutputs(alone));
}

TEST_CASE("numbers of threads that nobody has are refused before any is started, and the ranks go on") {
  constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();
  const Program program = programOf(1);
  const auto handle = loadLayer({.ranks = 1});
  LocalRanks ranks(1);
  const auto transport = std::move(threadsOf(1)[0]);
  for (const int threads : {kMost, 1'000'000'000, 65536, 4097, -1, kLeast}) {
    const ScarceThreads none(0);
    const std::string expected =
        "found " + std::to_string(threads) + " threads, expected 1 to 4096 (or 0 for this machine's share)";
    CHECK(Workspace::create(ranks.transport(0), {.threads = threads}).error().message == expected);
    CHECK(Context::create(program, ranks.transport(0), {.threads = threads}).error().message == expected);
    sluice_workspace_options options{sizeof options, threads, SLUICE_PIN_IF_ENOUGH};
    sluice_workspace* workspace = nullptr;
    CHECK(sluice_workspace_create(transport.get(), &options, &workspace) == SLUICE_ERROR_FAILED);
    CHECK(workspace == nullptr);
    CHECK(sluice_last_error() == expected);
    CHECK_FALSE(contextOf(handle, transport, nullptr, threads));
    CHECK(sluice_last_error() == expected);
    CHECK(none.refused() == 0);
  }
  CHECK_FALSE(ranks.transport(0).isAborted());
  CHECK(sluice_transport_is_aborted(transport.get()) == 0);
  CHECK(contextOf(handle, transport));
}

TEST_CASE("the C interface says how many threads there were, for workspaces and contexts") {
  const auto program = loadLayer({.ranks = 1, .cores = 8});
  for (int left = 0; left < kStarted; ++left) {
    const auto transport = std::move(threadsOf(1)[0]);
    const ScarceThreads scarce(left);
    sluice_workspace_options options{sizeof options, kThreads, SLUICE_PIN_NEVER};
    sluice_workspace* workspace = nullptr;
    CHECK(sluice_workspace_create(transport.get(), &options, &workspace) == SLUICE_ERROR_FAILED);
    CHECK(begins(sluice_last_error(), tooFew(left)));
  }
  const auto transport = std::move(threadsOf(1)[0]);
  const ScarceThreads scarce(3);
  CHECK_FALSE(contextOf(program, transport, nullptr, kThreads));
  CHECK(begins(sluice_last_error(), tooFew(3)));
}

}  // namespace
}  // namespace sluice
