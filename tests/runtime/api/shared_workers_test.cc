// Workspaces of several transports of one process: steps in turn use one set of workers, steps at the same
// time have one each.
#include <catch2/catch.hpp>

#include "runtime/api/context.h"
#include "runtime/workers/worker_pool.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/scarce_threads.h"

namespace sluice {
namespace {

constexpr int kWorkers = 2;             // of a rank
constexpr int kThreads = kWorkers - 1;  // that it starts: one is the caller

// A group of ranks that are threads of this process, with a workspace and a context each.
struct Group {
  Program program;
  LayerData data;
  uint64_t expected = 0;
  LocalRanks ranks;
  std::vector<std::unique_ptr<Context>> contexts;

  explicit Group(int size)
      : program(*Program::fromTaskProgram(buildMoeProgram({.ranks = size, .experts = 4, .cores = 3}))),
        data(dataOf()),
        ranks(size) {
    LayerData alone = dataOf();
    REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
    expected = hashOutputs(alone);
    for (int rank = 0; rank < size; ++rank) {
      ContextOptions options;
      // where they are bound, groups of several sizes prefer several units
      options.workspace = *Workspace::create(ranks.transport(rank), {.threads = kWorkers, .pin = false});
      contexts.push_back(std::move(*Context::create(program, ranks.transport(rank), options)));
      REQUIRE(bindAll(data, rank, *contexts.back()).ok());
    }
  }
  LayerData dataOf() const {
    return makeLayerData(program.tables(), {.tokens = {.counts = std::vector<int64_t>(program.ranks(), 30)}});
  }
  PendingStep submit(int rank, const char* entry) { return *contexts[rank]->submit(entry); }
  // One entry at all ranks.
  Status run(const char* entry) {
    std::vector<PendingStep> others;
    for (int rank = 1; rank < program.ranks(); ++rank) others.push_back(submit(rank, entry));
    Status ran = contexts[0]->run(entry);
    for (PendingStep& other : others)
      if (Status ended = other.wait(); ran && !ended) ran = ended;
    return ran;
  }
  bool isRight() const { return hashOutputs(data) == expected; }
};

TEST_CASE(
    "workspaces of several transports that are used in turn have one set of threads, until the last one "
    "ends") {
  const int before = threadsOfProcess();
  auto one = std::make_unique<Group>(1), other = std::make_unique<Group>(1);
  CHECK(threadsOfProcess() == before + kThreads);
  for (const char* entry : {"forward", "backward"})
    for (Group* group : {one.get(), other.get()}) REQUIRE(group->run(entry).ok());
  CHECK(one->isRight());
  CHECK(other->isRight());
  CHECK(threadsOfProcess() == before + kThreads);
  one.reset();
  CHECK(threadsOfProcess() == before + kThreads);
  CHECK(other->run("forward").ok());
  other.reset();
  CHECK(threadsOfProcess() == before);
}

TEST_CASE("ranks that are threads of one process have workers of their own from the start") {
  const int before = threadsOfProcess();
  const Group three(3), two(2);
  CHECK(threadsOfProcess() == before + 3 * kThreads);
}

TEST_CASE(
    "a step that waits for peers keeps its workers, and a step of another group gets others meanwhile") {
  const int before = threadsOfProcess();
  {
    Group waiting(2), busy(1);
    CHECK(threadsOfProcess() == before + 2 * kThreads);
    PendingStep first = waiting.submit(0, "forward");  // in a thread of its own
    // it gets as far as the meeting, and there it has workers
    int threads = 0;
    for (int attempt = 0; attempt < 100 && threads < before + 3 * kThreads + 1; ++attempt) {
      REQUIRE(busy.run("forward").ok());
      threads = threadsOfProcess();
    }
    CHECK(threads == before + 3 * kThreads + 1);
    CHECK_FALSE(first.isDone());
    REQUIRE(waiting.contexts[1]->run("forward").ok());
    REQUIRE(first.wait().ok());
    for (Group* group : {&waiting, &busy}) {
      REQUIRE(group->run("backward").ok());
      CHECK(group->isRight());
    }
    CHECK(threadsOfProcess() <= before + 3 * kThreads + 2);  // the other rank of `waiting` submits, too
  }
  CHECK(threadsOfProcess() == before);
}

// With one set of workers per process, each process would keep the one that the other step's peer needs.
TEST_CASE("two groups whose steps processes begin in different orders end") {
  Group a(2), b(2);
  for (const char* entry : {"forward", "backward"}) {
    std::vector<PendingStep> steps;
    steps.push_back(a.submit(0, entry));
    steps.push_back(b.submit(1, entry));
    steps.push_back(b.submit(0, entry));
    steps.push_back(a.submit(1, entry));
    for (PendingStep& step : steps) {
      const Status ended = step.wait();
      INFO((ended ? "" : ended.error().message));
      REQUIRE(ended.ok());
    }
  }
  CHECK(a.isRight());
  CHECK(b.isRight());
}

TEST_CASE(
    "a step for which no second set of threads can be started is refused at all ranks; the next one runs") {
  Group group(2);
  auto pool = WorkerPool::of(kWorkers, {}, 0);
  auto taken = *pool->lease();  // as by a step of another group
  std::vector<std::string> said(2);
  {
    PendingStep other = group.submit(1, "forward");
    const ScarceThreads scarce(0);
    said[0] = group.contexts[0]->run("forward").error().message;
    said[1] = other.wait().error().message;
    CHECK(scarce.refused() == 1);
  }
  for (const std::string& message : said)
    CHECK(message.find(
              "rank 0: started 0 of 1 threads for the workers of a rank: Resource temporarily unavailable") ==
          0);
  taken.reset();
  pool.reset();
  const int before = threadsOfProcess();
  for (const char* entry : {"forward", "backward"}) REQUIRE(group.run(entry).ok());
  CHECK(group.isRight());
  CHECK(threadsOfProcess() == before);
}

TEST_CASE("a step that is refused gives its workers back") {
  Group refusing(1), other(1);
  REQUIRE(refusing.run("forward").ok());
  const int before = threadsOfProcess();
  auto& ids = refusing.data.inputs[0].at("expert_ids");
  const int32_t kept = *reinterpret_cast<int32_t*>(ids.data());
  *reinterpret_cast<int32_t*>(ids.data()) = 99;  // found when the step already has workers
  CHECK_FALSE(refusing.run("forward").ok());
  CHECK(other.run("forward").ok());
  CHECK(threadsOfProcess() == before);
  *reinterpret_cast<int32_t*>(ids.data()) = kept;
  for (const char* entry : {"forward", "backward"}) REQUIRE(refusing.run(entry).ok());
  CHECK(refusing.isRight());
}

}  // namespace
}  // namespace sluice
