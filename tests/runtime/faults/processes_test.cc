// The same plans where ranks are processes, of one machine or of several: a rank that dies kills itself by
// kill -9.
#include "tests/testing/processes.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <random>

#include "runtime/comm/shm/shared_memory.h"
#include "tests/runtime/comm/ucx/ucx_meeting.h"
#include "tests/runtime/faults/fault_run.h"
#include "tests/testing/faulty_transport.h"

namespace sluice {
namespace {

constexpr uint64_t kPlans = 60;
constexpr double kDeadline = 60;  // seconds for all of a plan

enum class Network { kShm, kUcx };

std::string runInProcess(FaultCase& layer, const FaultPlan& plan, const ContextOptions& options, int rank,
                         const std::string& job, UcxMeeting& meeting, Network network) {
  auto joined = network == Network::kUcx
                    ? meeting.join(rank, plan.seed % 2 == 0, 30)
                    : joinSharedMemory({.name = job, .rank = rank, .size = layer.program.ranks()});
  if (!joined) return toText(RankEnd{{}, joined.error().message});
  FaultyTransport faulty(**joined, plan, nullptr);
  return toText(runRank(layer, rank, faulty, options));
}

// What is wrong with the plan's end, or "".
std::string runPlan(FaultCase& layer, const FaultPlan& plan, const ContextOptions& options, Network network) {
  UcxMeeting meeting(layer.program.ranks());
  const std::string job = fmt::format("faults-{:08x}-{}", std::random_device()(), plan.seed);
  Processes processes(layer.program.ranks(), [&](const Child& child) {
    return runInProcess(layer, plan, options, child.rank(), job, meeting, network);
  });
  std::vector<RankEnd> ends;
  const std::vector<ChildEnd> children = processes.wait(kDeadline);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    const ChildEnd& child = children[rank];
    const bool mayDie = plan.die > 0 && plan.rank == static_cast<int>(rank);
    if (child.late) return fmt::format("rank {} hangs", rank);
    if (!child.returned && !(mayDie && child.signal == SIGKILL))
      return fmt::format("rank {} ended by signal {}, status {}", rank, child.signal, child.status);
    ends.push_back(child.returned ? rankEndOf(child.text) : RankEnd{{}, kGone});
  }
  return network == Network::kShm ? judge(layer, plan, ends) : judgeEach(layer, plan, ends);
}

void checkPlans(Network network) {
  std::vector<FaultCase> cases = makeFaultCases();
  int killed = 0;
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    FaultCase& layer = cases[seed % cases.size()];
    const FaultPlan plan = randomFaultPlan(seed, layer.program.ranks(), layer.operations);
    const ContextOptions options = executorOf(seed / cases.size(), plan);
    INFO(layer.name << ", " << (options.threads == 0 ? 1 : options.threads) << " workers, " << toText(plan));
    CHECK(runPlan(layer, plan, options, network) == "");
    killed += plan.die > 0;
  }
  CHECK(killed > 10);
}

TEST_CASE("processes under any fault plan have right bits or an error that names the fault") {
  checkPlans(Network::kShm);
}

TEST_CASE("so have processes of several machines") {
  setenv("UCX_TLS", "tcp,self", 0);
  Processes process(1, [](const Child&) {
    auto endpoint = openUcx();
    return endpoint ? "" : endpoint.error().message;
  });
  const std::string why = process.wait()[0].text;
  if (why.starts_with("this program was built without UCX")) {
    WARN("SKIP: " << why);
    return;
  }
  REQUIRE(why == "");
  checkPlans(Network::kUcx);
}

}  // namespace
}  // namespace sluice
