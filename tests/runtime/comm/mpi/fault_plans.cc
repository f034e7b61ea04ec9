// Random fault plans where ranks are processes that mpirun started; fault_plans.sh runs it.
//
//   fault_plans list FIRST LAST          prints the runs that those plans need: lines 'together RANKS',
//   'alone RANKS PLAN' fault_plans run FIRST LAST FOLDER    by mpirun: the plans for this number of ranks in
//   which no rank dies fault_plans alone PLAN FOLDER        by mpirun: a plan in which a rank dies, and the
//   job with it fault_plans judge FIRST LAST FOLDER  checks that all ended as they may; prints how many did
//
// Each rank records its end in a file while the job lives: FOLDER/PLAN-RANK.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>

#include "runtime/comm/mpi/mpi.h"
#include "tests/runtime/faults/fault_run.h"
#include "tests/testing/faulty_transport.h"

namespace sluice {
namespace {

// Without shared memory no rank is notified of a death: the others notice it by their time limit.
constexpr double kLostLimit = 1;  // seconds

struct Planned {
  uint64_t seed = 0;
  FaultCase* layer = nullptr;
  FaultPlan plan;
  ContextOptions options;
};

Planned planOf(uint64_t seed, std::vector<FaultCase>& cases) {
  FaultCase& layer = cases[seed % cases.size()];
  const FaultPlan plan = randomFaultPlan(seed, layer.program.ranks(), layer.operations);
  ContextOptions options = executorOf(seed / cases.size(), plan);
  if (plan.die > 0) options.timeoutSeconds = kLostLimit;
  return {seed, &layer, plan, options};
}

std::string describe(const Planned& planned) {
  return fmt::format("plan {}, {}, {} workers, {}", planned.seed, planned.layer->name,
                     planned.options.threads == 0 ? 1 : planned.options.threads, toText(planned.plan));
}

std::string fileOf(const std::string& folder, uint64_t seed, int rank) {
  return fmt::format("{}/{}-{}", folder, seed, rank);
}

void leave(const std::string& folder, uint64_t seed, int rank, const RankEnd& end) {
  std::ofstream file(fileOf(folder, seed, rank));
  file << toText(end);
  if (!file.flush()) throw std::runtime_error("cannot write to " + folder);
}

// The end is on disk before the transport ends, because after the loss of a rank that ends the job.
void runPlan(const Planned& planned, const std::string& folder) {
  auto joined = joinMpi({.timeoutSeconds = planned.plan.die > 0 ? kLostLimit : 20});
  if (!joined) throw std::runtime_error(joined.error().message);
  FaultyTransport faulty(**joined, planned.plan, nullptr);
  const int rank = faulty.rank();
  leave(folder, planned.seed, rank, runRank(*planned.layer, rank, faulty, planned.options));
}

void list(uint64_t first, uint64_t last, std::vector<FaultCase>& cases) {
  std::set<int> together;
  for (uint64_t seed = first; seed < last; ++seed) {
    const Planned planned = planOf(seed, cases);
    const int ranks = planned.layer->program.ranks();
    if (planned.plan.die > 0)
      fmt::print("alone {} {}\n", ranks, seed);
    else if (together.insert(ranks).second)
      fmt::print("together {}\n", ranks);
  }
}

// The ends as ranks recorded them; the error "gone" if there is none.
std::vector<RankEnd> readEnds(const Planned& planned, const std::string& folder) {
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < planned.layer->program.ranks(); ++rank) {
    std::ifstream file(fileOf(folder, planned.seed, rank));
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    ends.push_back(text.empty() ? RankEnd{{}, kGone} : rankEndOf(text));
  }
  return ends;
}

std::string judgeFiles(const Planned& planned, const std::string& folder,
                       std::map<std::string, int>& counts) {
  const FaultPlan& plan = planned.plan;
  const std::vector<RankEnd> ends = readEnds(planned, folder);
  int failed = 0, missing = 0;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    const std::string& error = ends[rank].error;
    if (error.empty()) continue;
    const bool gone = error == kGone;
    ++(gone ? missing : failed);
  }
  // the first survivor that failed ends the job, possibly before all have failed
  if (missing > 0 && (plan.die == 0 || failed == 0)) return fmt::format("{} ranks left no end", missing);
  ++counts[failed == 0 ? "well" : "badly"];
  return judgeEach(*planned.layer, plan, ends);
}

int judgeAll(uint64_t first, uint64_t last, const std::string& folder, std::vector<FaultCase>& cases) {
  std::map<std::string, int> counts;
  uint64_t failed = 0;
  for (uint64_t seed = first; seed < last; ++seed) {
    const Planned planned = planOf(seed, cases);
    const std::string wrong = judgeFiles(planned, folder, counts);
    if (wrong.empty()) continue;
    ++failed;
    fmt::print("FAILED: {}: {}\n", describe(planned), wrong);
  }
  fmt::print("ended well: {}, badly: {}\n", counts["well"], counts["badly"]);
  fmt::print("test cases: {} | {} passed | {} failed\n", last - first, last - first - failed, failed);
  return failed == 0 ? 0 : 1;
}

void runTogether(uint64_t first, uint64_t last, const std::string& folder, std::vector<FaultCase>& cases) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (uint64_t seed = first; seed < last; ++seed) {
    const Planned planned = planOf(seed, cases);
    if (planned.plan.die == 0 && planned.layer->program.ranks() == ranks) runPlan(planned, folder);
  }
}

int runCommand(const std::vector<std::string>& words) {
  const auto number = [&](size_t i) { return std::strtoull(words.at(i).c_str(), nullptr, 10); };
  std::vector<FaultCase> cases = makeFaultCases();
  if (words.at(0) == "list") return list(number(1), number(2), cases), 0;
  if (words[0] == "judge") return judgeAll(number(1), number(2), words.at(3), cases);
  int level = 0;
  sluice::setMpiDefaults();  // like joinMpi() when it initialises MPI
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (words[0] == "run") runTogether(number(1), number(2), words.at(3), cases);
  if (words[0] == "alone") runPlan(planOf(number(1), cases), words.at(2));
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::runCommand({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    std::_Exit(1);
  }
}
