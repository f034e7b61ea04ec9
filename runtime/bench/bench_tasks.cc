// Prints the overhead of a task beside its kernel, in processor time. usage: bench_tasks [ROUNDS]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/bench/task_overhead.h"

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  const sluice::ChainShape empty{.cores = 1, .families = 8};
  // 32 KiB in, 32 KiB out
  const sluice::ChainShape small{.cores = 1, .families = 8, .columns = 1 << 14, .tokens = 256, .window = 64};
  const std::vector<sluice::OverheadCase> cases = {
      {"1 worker, 8 lanes", empty, 1},
      {"  recorded", empty, 1, true},
      {"1 worker, 1 lane", {.cores = 1, .families = 1}, 1},
      {"1 worker of 4 cores, 8 lanes", {.cores = 4, .families = 8}, 1},
      {"2 workers, 8 lanes", {.cores = 2, .families = 8}, 2},
      {"small tasks", small, 1},
      {"  recorded", small, 1, true},
  };
  const auto measured = sluice::measureTaskOverhead(cases, rounds);
  if (!measured) {
    fmt::print(stderr, "bench_tasks: error: {}\n", measured.error().message);
    return 1;
  }
  fmt::print("{:<32}{:>10}{:>10}{:>11}\n", "ns per task, processor time", "tasks", "best", "median");
  for (const sluice::TaskOverhead& one : *measured)
    fmt::print("{:<32}{:>10}{:>10.1f}{:>11.1f}\n", one.name, one.tasks, one.bestSeconds * 1e9,
               one.medianSeconds * 1e9);
  return 0;
}
