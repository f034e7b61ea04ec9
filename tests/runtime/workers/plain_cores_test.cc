#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "runtime/workers/cores.h"

namespace sluice {
namespace {

cpu_set_t unitsOf(int unit) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(unit, &set);
  return set;
}

TEST_CASE("without hwloc the units of the thread are its cores, and a limit of its own is found") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  const Cores all = usableCores();
  REQUIRE(all.count == CPU_COUNT(&before));
  CHECK(all.units.size() == static_cast<size_t>(all.count));
  for (const int unit : all.units) CHECK(CPU_ISSET(unit, &before));

  const int last = all.units.back();
  const cpu_set_t only = unitsOf(last);
  REQUIRE(sched_setaffinity(0, sizeof(only), &only) == 0);
  const Cores one = usableCores();
  CHECK(one.units == std::vector<int>{last});
  CHECK(one.count == 1);
  CHECK(one.areOwn == (all.count > 1));
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
}

TEST_CASE("without hwloc a thread is bound, too") {
  const int last = usableCores().units.back();
  std::atomic<bool> isGo = false;
  cpu_set_t found;
  CPU_ZERO(&found);
  std::thread thread([&] {
    while (!isGo) std::this_thread::yield();
    sched_getaffinity(0, sizeof(found), &found);
  });
  bindThread(thread, last);
  isGo = true;
  thread.join();
  const cpu_set_t only = unitsOf(last);
  CHECK(CPU_EQUAL(&found, &only));
}

}  // namespace
}  // namespace sluice
