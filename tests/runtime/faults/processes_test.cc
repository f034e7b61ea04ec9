// The same plans where ranks are processes of one machine: a rank that dies kills itself by kill -9.
#include "tests/testing/processes.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <random>

#include "runtime/comm/shm/shared_memory.h"
#include "tests/runtime/faults/fault_run.h"
#include "tests/testing/faulty_transport.h"

namespace sluice {
namespace {

constexpr uint64_t kPlans = 60;
constexpr double kDeadline = 60;  // seconds for all of a plan

std::string runInProcess(FaultCase& layer, const FaultPlan& plan, const ContextOptions& options, int rank,
                         const std::string& job) {
  auto joined = joinSharedMemory({.name = job, .rank = rank, .size = layer.program.ranks()});
  if (!joined) return toText(RankEnd{{}, joined.error().message});
  FaultyTransport faulty(**joined, plan, nullptr);
  return toText(runRank(layer, rank, faulty, options));
}

// What is wrong with the plan's end, or "".
std::string runPlan(FaultCase& layer, const FaultPlan& plan, const ContextOptions& options) {
  const std::string job = fmt::format("faults-{:08x}-{}", std::random_device()(), plan.seed);
  Processes processes(layer.program.ranks(), [&](const Child& child) {
    return runInProcess(layer, plan, options, child.rank(), job);
  });
  std::vector<RankEnd> ends;
  const std::vector<ChildEnd> children = processes.wait(kDeadline);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    const ChildEnd& child = children[rank];
    const bool mayDie = plan.die > 0 && plan.rank == static_cast<int>(rank);
    if (child.late) return fmt::format("rank {} hangs", rank);
    if (!child.returned && !(mayDie && child.signal == SIGKILL))
      return fmt::format("rank {} ended by signal {}, status {}", rank, child.signal, child.status);
    ends.push_back(child.returned ? rankEndOf(child.text) : RankEnd{{}, "dead"});
  }
  return judge(layer, plan, ends);
}

TEST_CASE("processes under any fault plan have right bits or an error that names the fault") {
  std::vector<FaultCase> cases = makeFaultCases();
  int killed = 0;
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    FaultCase& layer = cases[seed % cases.size()];
    const FaultPlan plan = randomFaultPlan(seed, layer.program.ranks(), layer.operations);
    const ContextOptions options = executorOf(seed / cases.size(), plan);
    INFO(layer.name << ", " << (options.threads == 0 ? 1 : options.threads) << " workers, " << toText(plan));
    CHECK(runPlan(layer, plan, options) == "");
    killed += plan.die > 0;
  }
  CHECK(killed > 10);
}

}  // namespace
}  // namespace sluice
