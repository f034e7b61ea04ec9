// The thread that notices ends, also on systems without pidfds.
#include "runtime/comm/shm/life_watcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "tests/runtime/comm/shm/joined_ranks.h"

namespace sluice {
namespace {

// Whether the condition came to hold; a hang ends after a minute.
template <class Condition>
bool awaits(const Condition& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) usleep(1000);
  return condition();
}

// The first rank whose end is noticed, or -1.
int awaitEnd(std::vector<LifeLine> lines, const std::function<void()>& meanwhile) {
  std::atomic<int> ended{-1};
  auto watcher = LifeWatcher::start(std::move(lines), [&](int rank) {
    int none = -1;
    ended.compare_exchange_strong(none, rank);
  });
  if (!watcher) return -2;
  meanwhile();
  awaits([&] { return ended != -1; });
  return ended;
}

struct Pair {
  FileDescriptor ours, theirs;
};
Pair makePair() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

TEST_CASE("the end of a connection is noticed, and that of no other") {
  Pair first = makePair(), second = makePair();
  std::vector<LifeLine> lines;
  lines.push_back({4, std::move(first.ours)});
  lines.push_back({7, std::move(second.ours)});
  CHECK(awaitEnd(std::move(lines), [&] { second.theirs.reset(); }) == 7);
}

// When the second end is noticed, the first would have been noticed again.
TEST_CASE("an end is noticed once") {
  Pair first = makePair(), second = makePair();
  std::vector<LifeLine> lines;
  lines.push_back({4, std::move(first.ours)});
  lines.push_back({7, std::move(second.ours)});
  std::atomic<int> ofFirst{0}, ofSecond{0};
  auto watcher = LifeWatcher::start(std::move(lines), [&](int rank) { ++(rank == 4 ? ofFirst : ofSecond); });
  REQUIRE(watcher.ok());
  first.theirs.reset();
  REQUIRE(awaits([&] { return ofFirst > 0; }));
  second.theirs.reset();
  REQUIRE(awaits([&] { return ofSecond > 0; }));
  CHECK(ofFirst == 1);
}

TEST_CASE("nothing is noticed while all live, and the thread ends with the object") {
  Pair pair = makePair();
  std::vector<LifeLine> lines;
  lines.push_back({4, std::move(pair.ours)});
  std::atomic<int> calls{0};
  {
    auto watcher = LifeWatcher::start(std::move(lines), [&](int) { ++calls; });
    REQUIRE(watcher.ok());
    usleep(50'000);
  }
  CHECK(calls == 0);
}

TEST_CASE("the watching thread leaves signals to the program") {
  static std::atomic<pid_t> handler{0};
  struct sigaction action{};
  action.sa_handler = [](int) { handler = gettid(); };
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  auto watcher = LifeWatcher::start({}, [](int) {});
  REQUIRE(watcher.ok());
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  kill(getpid(), SIGUSR1);
  usleep(50'000);
  CHECK(handler == 0);  // no other thread took it
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  REQUIRE(awaits([&] { return handler != 0; }));
  CHECK(handler == gettid());
}

// On systems without pidfds, rank 0 and each other rank notice each other's end.
void checkConnections(int victim, int watching) {
  const std::string name = newJobName();
  Processes processes(3, [&](const Child& child) {
    auto meeting = meet({.name = name, .rank = child.rank(), .size = 3}, LifeLineKind::kConnections);
    if (!meeting) return meeting.error().message;
    if (meeting->lifeLines.size() != (child.rank() == 0 ? 2u : 1u)) return std::string("other life lines");
    child.say("met");
    if (child.rank() != watching) sleep(60);
    return fmt::format("{}", awaitEnd(std::move(meeting->lifeLines), [] {}));
  });
  for (int rank = 0; rank < 3; ++rank) REQUIRE(processes.awaitLine(rank, "met"));
  processes.send(victim, SIGKILL);
  REQUIRE(processes.awaitLine(watching, "never said", 5) == false);
  for (int rank = 0; rank < 3; ++rank)
    if (rank != watching) processes.send(rank, SIGKILL);
  CHECK(processes.wait(10)[watching].text == fmt::format("{}", victim));
}

TEST_CASE("without files of processes, rank 0 notices the end of another by its connection") {
  checkConnections(2, 0);
}

TEST_CASE("without files of processes, others notice the end of rank 0 by their connection") {
  checkConnections(0, 1);
}

}  // namespace
}  // namespace sluice
