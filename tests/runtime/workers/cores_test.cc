#include "runtime/workers/cores.h"

#include <hwloc.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace sluice {
namespace {

// The cores of a machine in hwloc's description; `allowed` is in hwloc's list format.
Cores coresOf(const char* machine, const char* allowed) {
  hwloc_topology_t topology = nullptr;
  REQUIRE(hwloc_topology_init(&topology) == 0);
  REQUIRE(hwloc_topology_set_synthetic(topology, machine) == 0);
  REQUIRE(hwloc_topology_load(topology) == 0);
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  REQUIRE(hwloc_bitmap_list_sscanf(set, allowed) == 0);
  Cores cores = coresIn(topology, set);
  hwloc_bitmap_free(set);
  hwloc_topology_destroy(topology);
  return cores;
}

TEST_CASE("every core gives its first unit before any gives a second") {
  const Cores cores = coresOf("pack:2 core:2 pu:2", "0-7");
  CHECK(cores.units == std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(cores.count == 4);
}

TEST_CASE("only what is allowed is used, and a core with one unit left is a core") {
  const Cores cores = coresOf("pack:2 core:2 pu:2", "1,4-5,60");
  CHECK(cores.units == std::vector<int>{1, 4, 5});
  CHECK(cores.count == 2);
}

TEST_CASE("units of a machine without known cores are cores") {
  const Cores cores = coresOf("numa:1 pu:3", "0-2");
  CHECK(cores.units == std::vector<int>{0, 1, 2});
  CHECK(cores.count == 3);
}

Cores fourCores(bool areOwn) { return {{0, 2, 4, 6, 1, 3, 5, 7}, 4, areOwn}; }

TEST_CASE("ranks that share cores take a part of them each, and prefer others") {
  const CoreShare share = computeShare(fourCores(false), {.rank = 1, .ranks = 2}, 0);
  CHECK(share.threads == 2);
  CHECK(share.units == std::vector<int>{4, 6, 1, 3, 5, 7, 0, 2});
  CHECK(computeShare(fourCores(false), {.rank = 5, .ranks = 8}, 0).threads == 1);
}

TEST_CASE("a process that was given cores of its own takes all, but ranks that are its threads share them") {
  CHECK(computeShare(fourCores(true), {.rank = 1, .ranks = 2}, 0).threads == 4);
  CHECK(computeShare(fourCores(true), {.rank = 1, .ranks = 2}, 0).units.front() == 0);
  const CoreShare ofThread = computeShare(fourCores(true), {.rank = 1, .ranks = 2, .isProcess = false}, 0);
  CHECK(ofThread.threads == 2);
  CHECK(ofThread.units.front() == 4);
}

TEST_CASE("threads for which all ranks have not enough units are not bound") {
  CHECK(computeShare(fourCores(false), {.rank = 0, .ranks = 2}, 4).units.size() == 8);
  const CoreShare many = computeShare(fourCores(false), {.rank = 0, .ranks = 2}, 5);
  CHECK(many.threads == 5);
  CHECK(many.units.empty());
}

// What a child of this process reports about its cores, as digits. `prepare` runs before.
template <class Prepare>
std::string saidByChild(Prepare prepare) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prepare();
    const Cores cores = usableCores();
    const std::string text = std::to_string(cores.count) + (cores.areOwn ? " own" : " shared");
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  char text[64] = "";
  const ssize_t bytes = read(ends[0], text, sizeof(text) - 1);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
  return {text, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
}

void useOnly(int unit) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(unit), &only);
  if (sched_setaffinity(0, sizeof(only), &only) != 0) _exit(2);
}

TEST_CASE("a process that was given fewer units than its starter has keeps to them, and they are its own") {
  const Cores cores = usableCores();
  REQUIRE(cores.count >= 1);
  if (cores.units.size() < 2) return;
  CHECK(saidByChild([] {}) == std::to_string(cores.count) + " shared");
  CHECK(saidByChild([&] { useOnly(cores.units.back()); }) == "1 own");
}

TEST_CASE("a thread that OpenMP has bound says nothing of its process") {
  const Cores cores = usableCores();
  if (cores.units.size() < 2) return;
  const auto bound = [&] {
    setenv("OMP_PROC_BIND", "close", 1);
    useOnly(cores.units.back());
  };
  CHECK(saidByChild(bound) == std::to_string(cores.count) + " shared");
}

}  // namespace
}  // namespace sluice
