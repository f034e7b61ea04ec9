// Steps on threads that the caller lends.
#include <catch2/catch.hpp>
#include <cfenv>
#include <thread>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/workers/worker_pool.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/scarce_threads.h"

namespace sluice {
namespace {

constexpr int kWorkers = 3;

// The calling thread and others, which round upwards; or the calling thread, which is every worker in turn.
class UpwardTeam final : public Team {
 public:
  bool has(int workers) const override { return workers <= promised; }
  bool run(int workers, void (*job)(void* context, int worker), void* context) override {
    if (workers > threads) return false;
    const int before = std::fegetround();
    const auto work = [=](int worker) {
      std::fesetround(FE_UPWARD);
      job(context, worker);
    };
    std::vector<std::jthread> others;
    for (int worker = 1; worker < workers; ++worker)
      isOneThread ? work(worker) : void(others.emplace_back(work, worker));
    work(0);
    roundsUpward = std::fegetround() == FE_UPWARD;
    std::fesetround(before);
    ++jobs;
    return true;
  }

  int promised = kWorkers, threads = kWorkers;
  int jobs = 0;
  bool isOneThread = false;
  bool roundsUpward = false;  // after a job
};

struct Lent {
  UpwardTeam team;
  Program program = *Program::fromTaskProgram(buildMoeProgram({.ranks = 1, .experts = 4, .cores = kWorkers}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {30}}});
  LocalRanks ranks{1};
  std::unique_ptr<Context> context;
  uint64_t expected = 0;

  Lent() {
    LayerData alone = makeLayerData(program.tables(), {.tokens = {.counts = {30}}});
    REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
    expected = hashOutputs(alone);
    ContextOptions options;
    options.workspace =
        *Workspace::create(ranks.transport(0), {.threads = kWorkers, .pin = false, .callers = &team});
    context = *Context::create(program, ranks.transport(0), options);
    REQUIRE(bindAll(data, 0, *context).ok());
  }
  void runBoth() {
    for (const char* entry : {"forward", "backward"}) REQUIRE(context->run(entry).ok());
    CHECK(hashOutputs(data) == expected);
  }
};

TEST_CASE("a step runs on the caller's threads, with the same bits however they round") {
  Lent lent;
  lent.runBoth();
  CHECK(lent.team.jobs == 2);
  CHECK(lent.team.roundsUpward);
}

TEST_CASE("the first worker runs the tasks of workers that have not begun") {
  Lent lent;
  lent.team.isOneThread = true;
  for (int step = 0; step < 3; ++step) lent.runBoth();
  CHECK(lent.team.jobs == 6);
}

TEST_CASE("a submitted step, or one for which the caller has too few threads, has workers of its own") {
  Lent lent;
  for (const char* entry : {"forward", "backward"}) REQUIRE(lent.context->submit(entry)->wait().ok());
  CHECK(hashOutputs(lent.data) == lent.expected);
  lent.team.promised = kWorkers - 1;
  lent.runBoth();
  lent.team.promised = kWorkers;
  lent.team.threads = kWorkers - 1;  // found when the step has begun
  lent.runBoth();
  CHECK(lent.team.jobs == 0);
  lent.team.threads = kWorkers;
  lent.runBoth();
  CHECK(lent.team.jobs == 2);
}

TEST_CASE("a step that finds neither the caller's threads nor others fails with the reason") {
  Lent lent;
  const auto pool = WorkerPool::of(kWorkers, {}, 0);
  const auto taken = *pool->lease();
  lent.team.threads = 1;
  const ScarceThreads scarce(0);
  const Status ran = lent.context->run("forward");
  REQUIRE_FALSE(ran.ok());
  CHECK(ran.error().message.find("rank 0: started 0 of 2 threads for the workers of a rank") !=
        std::string::npos);
}

}  // namespace
}  // namespace sluice
