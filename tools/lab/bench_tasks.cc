// Prints the overhead of a task beside its kernel, in processor time. usage: bench_tasks [ROUNDS]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/base/clock.h"
#include "tools/calibrate/chain.h"

namespace sluice {
namespace {

struct Case {
  const char* name;
  ChainShape shape;
  int threads = 1;
  bool trace = false;  // its runs are recorded
  std::unique_ptr<Chain> chain = {};
  std::vector<double> seconds = {};  // of processor time of the process, per task, by run
};

// Runs the cases in turn.
Status measure(std::vector<Case>& cases, int rounds) {
  for (Case& each : cases) {
    auto chain = Chain::create(each.shape, each.threads);
    if (!chain) return chain.error();
    each.chain = std::move(*chain);
    if (each.trace) each.chain->context().startTrace();
  }
  // the first run touches the memory
  for (int round = -1; round < rounds; ++round)
    for (Case& each : cases) {
      const double begin = secondsNow(CLOCK_PROCESS_CPUTIME_ID);
      if (Status ran = each.chain->run(); !ran) return ran;
      const double seconds = secondsNow(CLOCK_PROCESS_CPUTIME_ID) - begin;
      if (round >= 0)
        each.seconds.push_back(seconds / static_cast<double>(each.chain->context().lastRun().tasks));
      each.chain->context().takeTrace();
    }
  return {};
}

int run(int rounds) {
  const ChainShape empty;
  // 32 KiB in, 32 KiB out
  const ChainShape small{.columns = 1 << 14, .tokens = 256};
  std::vector<Case> cases;
  cases.push_back({"1 worker, 8 lanes", empty});
  cases.push_back({"  recorded", empty, 1, true});
  cases.push_back({"1 worker, 1 lane", {.families = 1}});
  cases.push_back({"1 worker of 4 cores, 8 lanes", {.cores = 4}});
  cases.push_back({"2 workers, 8 lanes", {.cores = 2}, 2});
  cases.push_back({"small tasks", small});
  cases.push_back({"  recorded", small, 1, true});
  if (const Status done = measure(cases, rounds); !done) {
    fmt::print(stderr, "bench_tasks: error: {}\n", done.error().message);
    return 1;
  }
  fmt::print("{:<32}{:>10}{:>10}{:>11}\n", "ns per task, processor time", "tasks", "best", "median");
  for (const Case& each : cases)
    fmt::print("{:<32}{:>10}{:>10.1f}{:>11.1f}\n", each.name, each.chain->context().lastRun().tasks,
               *std::min_element(each.seconds.begin(), each.seconds.end()) * 1e9,
               computeMedian(each.seconds) * 1e9);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  if (rounds > 0) return sluice::run(rounds);
  fmt::print(stderr, "usage: bench_tasks [ROUNDS]\n");
  return 2;
}
