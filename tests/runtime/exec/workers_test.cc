#include "runtime/exec/workers.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <vector>

namespace sluice {
namespace {

std::vector<int> unitsOf(const cpu_set_t& set) {
  std::vector<int> units;
  for (int unit = 0; unit < CPU_SETSIZE; ++unit)
    if (CPU_ISSET(unit, &set)) units.push_back(unit);
  return units;
}

// Where the workers of a process that may use only `allowed` can run.
std::vector<std::vector<int>> unitsOfWorkers(const cpu_set_t& allowed, int count, int firstUnit) {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  REQUIRE(sched_setaffinity(0, sizeof(allowed), &allowed) == 0);
  std::vector<std::vector<int>> units(static_cast<size_t>(count));
  {
    Workers workers(count, firstUnit);
    workers.run(
        [](void* context, int worker) {
          cpu_set_t own;
          sched_getaffinity(0, sizeof(own), &own);
          (*static_cast<std::vector<std::vector<int>>*>(context))[static_cast<size_t>(worker)] = unitsOf(own);
        },
        &units);
  }
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
  return units;
}

TEST_CASE("workers are bound to units that their process may use, in order") {
  cpu_set_t all;
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  const std::vector<int> units = unitsOf(all);
  const auto of = unitsOfWorkers(all, 1, static_cast<int>(units.size()) - 1);
  CHECK(of[0] == std::vector<int>{units.back()});
  CHECK(unitsOfWorkers(all, 1, -1)[0] == units);
  // ranks that were given the last core each take that, not the machine's first
  cpu_set_t last;
  CPU_ZERO(&last);
  CPU_SET(units.back(), &last);
  CHECK(unitsOfWorkers(last, 1, 0)[0] == std::vector<int>{units.back()});
}

TEST_CASE("more workers than units that the caller may use take those of the machine") {
  cpu_set_t all, first;
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  const std::vector<int> units = unitsOf(all);
  if (units.size() < 2) return;
  CPU_ZERO(&first);
  CPU_SET(units.front(), &first);
  const auto of = unitsOfWorkers(first, 2, 0);
  CHECK(of[0].size() == 1);
  CHECK(of[1].size() == 1);
  CHECK(of[0] != of[1]);
}

}  // namespace
}  // namespace sluice
