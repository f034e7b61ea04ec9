#include "runtime/workers/workers.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/workers/cores.h"

namespace sluice {
namespace {

using Units = std::vector<int>;

Units unitsOfThread() {
  cpu_set_t set;
  Units units;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return units;
  for (int unit = 0; unit < CPU_SETSIZE; ++unit)
    if (CPU_ISSET(unit, &set)) units.push_back(unit);
  return units;
}

// Where each of the workers can run.
std::vector<Units> unitsOf(Workers& workers) {
  std::vector<Units> units(static_cast<size_t>(workers.count()));
  workers.run(
      [](void* context, int worker) {
        (*static_cast<std::vector<Units>*>(context))[static_cast<size_t>(worker)] = unitsOfThread();
      },
      &units);
  return units;
}

std::string anyName() { return "test-" + std::to_string(std::random_device{}()); }

TEST_CASE("workers are bound to units in the order given, and without any run where their process may") {
  CoreClaims claims(anyName());
  const Units all = usableCores().units;
  const Units last = {all.back(), all.front()};
  const auto bound = *Workers::start(1, last, claims), free = *Workers::start(2);
  CHECK(unitsOf(*bound)[0] == Units{all.back()});
  CHECK(unitsOf(*free) == std::vector<Units>(2, unitsOfThread()));
}

TEST_CASE("no two workers of a rank are bound to one unit") {
  CoreClaims claims(anyName());
  const Units one = {usableCores().units.front()};
  const auto workers = *Workers::start(2, one, claims);
  CHECK(unitsOf(*workers)[0] == one);
  CHECK(unitsOf(*workers)[1] == unitsOfThread());
}

TEST_CASE("workers of two jobs take different units, and get them back when a job ends") {
  const Units all = usableCores().units;
  if (all.size() < 2) return;
  const std::string name = anyName();
  CoreClaims one(name), other(name);
  const Units two = {all[0], all[1]};
  {
    const auto first = *Workers::start(1, two, one), beside = *Workers::start(1, two, other),
               crowded = *Workers::start(1, two, other);
    CHECK(unitsOf(*first)[0] == Units{all[0]});
    CHECK(unitsOf(*beside)[0] == Units{all[1]});
    CHECK(unitsOf(*crowded)[0] == Units{all[1]});  // the same process: its workers may run in turn
  }
  const auto again = *Workers::start(1, two, other);
  CHECK(unitsOf(*again)[0] == Units{all[0]});
}

TEST_CASE("the caller of a job is worker 0, on that worker's unit until all are done, and then as before") {
  struct Job {
    std::vector<std::thread::id> threads = std::vector<std::thread::id>(3);
    std::vector<int> rounds = std::vector<int>(3);
    int slowest = 0;
  } job;
  CoreClaims claims(anyName());
  const Units before = unitsOfThread(), one = {usableCores().units.back()};
  const auto workers = *Workers::start(3, one, claims);
  CHECK(unitsOf(*workers)[0] == one);
  for (int round = 1; round <= 30; ++round) {
    job.slowest = round % 3;
    workers->run(
        [](void* context, int worker) {
          Job& of = *static_cast<Job*>(context);
          // less than the caller polls, and more
          if (worker == of.slowest) std::this_thread::sleep_for(std::chrono::microseconds(10 << worker * 4));
          of.threads[static_cast<size_t>(worker)] = std::this_thread::get_id();
          ++of.rounds[static_cast<size_t>(worker)];
        },
        &job);
    CHECK(job.rounds == std::vector<int>(3, round));
    CHECK(job.threads[0] == std::this_thread::get_id());
    CHECK(job.threads[1] != job.threads[0]);
    CHECK(unitsOfThread() == before);
  }
}

TEST_CASE("a job of some workers runs in the caller and in as many others") {
  const auto workers = *Workers::start(3);
  for (int some = 1; some <= 3; ++some) {
    std::vector<int> runs(3);
    CHECK(workers->run(
        some,
        [](void* context, int worker) {
          ++(*static_cast<std::vector<int>*>(context))[static_cast<size_t>(worker)];
        },
        &runs));
    CHECK(runs == std::vector<int>{1, some > 1, some > 2});
  }
  CHECK_FALSE(workers->run(4, [](void*, int) {}, nullptr));
}

}  // namespace
}  // namespace sluice
