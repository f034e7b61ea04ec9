// Ends of processes: the survivors notice at once which process ended, and mistake nothing else for an end.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>

#include "tests/runtime/comm/shm/joined_ranks.h"

namespace sluice {
namespace {

constexpr double kAtOnce = 8;  // seconds in which survivors must notice on a busy machine; otherwise after 30

uint64_t load(const std::byte* word) {
  return std::atomic_ref<const uint64_t>(*reinterpret_cast<const uint64_t*>(word))
      .load(std::memory_order_seq_cst);
}

// What a rank does until it is killed.
using Occupation = void (*)(Transport& transport, SymmetricHandle memory);

void idle(Transport&, SymmetricHandle) { sleep(60); }

void park(Transport& transport, SymmetricHandle) {
  parkUntil(transport, [] { return false; }, 60);
}

void signalAll(Transport& transport, SymmetricHandle memory) {
  while (true)
    for (int rank = 0; rank < transport.size(); ++rank) {
      transport.signal(rank, memory, 8, 1);
      transport.post(rank, memory, 16, 5);
    }
}

// Joins, reports that, and waits for the end of others.
std::string survive(Transport& transport) {
  if (!parkUntil(transport, [&] { return transport.isAborted(); }, 20)) return "nobody died";
  return fmt::format("{}: {}", transport.lostRank(), transport.abortMessage());
}

struct Fate {
  int size = 3;
  std::set<int> victims;
  Occupation occupation = idle;
  int signal = SIGKILL;
};

// Kills the victims once all have joined. The message of each survivor names a victim, the same at all.
void checkDeaths(const Fate& fate) {
  const std::string name = newJobName();
  Processes processes(fate.size, [&](const Child& child) {
    return joinAndRun({.name = name, .rank = child.rank(), .size = fate.size}, [&](Transport& transport) {
      const SymmetricHandle memory = *transport.allocate(4096);
      for (int rank = 0; rank < transport.size(); ++rank) transport.signal(rank, memory, 0, 1);
      const auto all = [&] { return load(transport.local(memory)) == static_cast<uint64_t>(fate.size); };
      if (!parkUntil(transport, all)) return std::string("not all came");
      child.say("joined");
      if (fate.victims.count(child.rank())) fate.occupation(transport, memory);
      return survive(transport);
    });
  });
  for (int rank = 0; rank < fate.size; ++rank) REQUIRE(processes.awaitLine(rank, "joined"));
  usleep(20'000);
  for (const int victim : fate.victims) processes.send(victim, fate.signal);

  const auto ends = processes.wait(30);
  std::set<std::string> expected, found;
  for (const int victim : fate.victims) {
    CHECK(ends[victim].signal == fate.signal);
    expected.insert(fmt::format("{0}: rank {0} (process {1}) has died", victim, processes.pid(victim)));
  }
  for (int rank = 0; rank < fate.size; ++rank) {
    if (fate.victims.count(rank)) continue;
    CHECK(ends[rank].returned);
    CHECK(ends[rank].seconds < kAtOnce);
    found.insert(ends[rank].text);
  }
  REQUIRE(found.size() == 1);
  INFO(*found.begin());
  CHECK(expected.count(*found.begin()) == 1);
}

TEST_CASE("an idle process that is killed is lost, and all others know which") {
  checkDeaths({.size = 3, .victims = {1}});
}

TEST_CASE("so is one that waits at its doorbell") {
  checkDeaths({.size = 3, .victims = {2}, .occupation = park});
}

TEST_CASE("so is one that was signalling, whatever it was about to do") {
  for (int round = 0; round < 5; ++round) checkDeaths({.size = 2, .victims = {1}, .occupation = signalAll});
}

TEST_CASE("so is rank 0, which all met at") { checkDeaths({.size = 4, .victims = {0}}); }

TEST_CASE("of two that die at once all others name the same") { checkDeaths({.size = 4, .victims = {1, 3}}); }

TEST_CASE("the last one learns that all others died") { checkDeaths({.size = 4, .victims = {0, 1, 2}}); }

TEST_CASE("a crash is a death") {
  checkDeaths({.size = 2, .victims = {0}, .occupation = signalAll, .signal = SIGTERM});
}

// Rank 0 observes rank 1 while the test acts on it, and returns what it saw.
std::string lookWhile(Transport& transport, const Child& child, SymmetricHandle memory) {
  child.say("looking");
  if (!parkUntil(transport, [&] { return transport.isAborted() || load(transport.local(memory)) == 7; }))
    return "nothing came";
  return fmt::format("{} {} {}", transport.lostRank(), transport.hasLeft(1), transport.abortMessage());
}

TEST_CASE("a process that ends by itself without leaving is lost") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    return joinAndRun({.name = name, .rank = child.rank(), .size = 2}, [&](Transport& transport) {
      if (child.rank() == 1) _exit(3);
      return survive(transport);
    });
  });
  const auto ends = processes.wait(30);
  CHECK(ends[1].status == 3);
  CHECK(ends[0].text == fmt::format("1: rank 1 (process {}) has died", processes.pid(1)));
}

TEST_CASE("a stopped process is not dead, is seen to be stopped, and goes on") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    return joinAndRun({.name = name, .rank = child.rank(), .size = 2}, [&](Transport& transport) {
      const SymmetricHandle memory = *transport.allocate(64);
      if (child.rank() == 0) {
        child.say("looking");
        while (!transport.isStopped(1)) usleep(1000);
        transport.post(1, memory, 0, 3);
        const std::string seen = lookWhile(transport, child, memory);
        return seen + (transport.isStopped(1) ? "stopped" : "");
      }
      child.say("looking");
      // here it is stopped
      if (!parkUntil(transport, [&] { return load(transport.local(memory)) == 3; }))
        return std::string("nothing came");
      transport.post(0, memory, 0, 7);
      // not before rank 0 has looked
      return std::string(parkUntil(transport, [&] { return transport.hasLeft(0); }) ? "" : "rank 0 hangs");
    });
  });
  REQUIRE(processes.awaitLine(0, "looking"));
  REQUIRE(processes.awaitLine(1, "looking"));
  processes.send(1, SIGSTOP);
  usleep(700'000);
  processes.send(1, SIGCONT);
  const auto ends = processes.wait(30);
  CHECK(ends[0].text == "-1 false ");
  CHECK(ends[1].text == "");
}

TEST_CASE("a process that leaves and then is killed is not lost") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    auto transport = joinSharedMemory({.name = name, .rank = child.rank(), .size = 2});
    if (!transport) return transport.error().message;
    if (child.rank() == 1) {
      transport->reset();
      child.say("left");
      sleep(60);
    }
    if (!parkUntil(**transport, [&] { return (*transport)->hasLeft(1); })) return std::string("has not left");
    usleep(500'000);  // in which its process is killed
    return fmt::format("{} {} {}", (*transport)->lostRank(), (*transport)->hasLeft(1),
                       (*transport)->abortMessage());
  });
  REQUIRE(processes.awaitLine(1, "left"));
  processes.send(1, SIGKILL);
  CHECK(processes.wait(30)[0].text == "-1 true ");
}

TEST_CASE("a forked child of a rank neither leaves for it nor keeps it alive") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    auto transport = joinSharedMemory({.name = name, .rank = child.rank(), .size = 2});
    if (!transport) return transport.error().message;
    const SymmetricHandle memory = *(*transport)->allocate(64);
    if (child.rank() == 0) {
      child.say("joined");
      usleep(300'000);  // the child's child has ended by then
      if ((*transport)->hasLeft(1) || (*transport)->isAborted()) return std::string("taken for the rank");
      child.say("looked");
      return survive(**transport);
    }
    const pid_t forked = fork();
    if (forked == 0) {
      transport->reset();
      _exit(0);
    }
    int status = 0;
    waitpid(forked, &status, 0);
    if (status != 0) return std::string("the forked child crashed");
    (*transport)->signal(0, memory, 8, 1);  // all is still there
    if (fork() == 0) {
      sleep(3);
      _exit(0);
    }
    sleep(60);
    return std::string();
  });
  REQUIRE(processes.awaitLine(0, "looked"));
  processes.send(1, SIGKILL);
  const auto ends = processes.wait(30);
  CHECK(ends[0].text == fmt::format("1: rank 1 (process {}) has died", processes.pid(1)));
  CHECK(ends[0].seconds < kAtOnce);
}

}  // namespace
}  // namespace sluice
