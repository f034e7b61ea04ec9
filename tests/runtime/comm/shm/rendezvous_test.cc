// How the processes of a job meet: missing, wrong or strange processes are reported, and no process hangs.
#include "runtime/comm/shm/rendezvous.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/clock.h"
#include "runtime/comm/shm/local_socket.h"
#include "tests/runtime/comm/shm/joined_ranks.h"

namespace sluice {
namespace {

// Joins each in its own thread, and returns the error of each, or "".
std::vector<std::string> joinAll(const std::vector<SharedMemoryJob>& jobs) {
  std::vector<std::string> texts(jobs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); ++i)
    threads.emplace_back([&, i] {
      auto transport = joinSharedMemory(jobs[i]);
      texts[i] = transport ? "" : transport.error().message;
    });
  for (std::thread& thread : threads) thread.join();
  return texts;
}

// Connects to rank 0 of that job, which may start a little later.
FileDescriptor visit(const std::string& name) {
  for (int i = 0; i < 5000; ++i) {
    auto socket = connectLocally(rendezvousName(name));
    if (socket && *socket) return std::move(*socket);
    usleep(1000);
  }
  return {};
}

template <class T>
std::span<const std::byte> bytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// The reason of the next refusal.
std::string refusalOf(const FileDescriptor& socket) {
  if (!awaitReadable(socket, 5'000'000'000)) return "no answer";
  auto message = receiveMessage(socket, 4096);
  RendezvousReply reply;
  if (!message || message->bytes.size() < sizeof(reply)) return "gone";
  std::memcpy(&reply, message->bytes.data(), sizeof(reply));
  if (!reply.refused) return "welcome";
  return std::string(reinterpret_cast<const char*>(message->bytes.data()) + sizeof(reply),
                     message->bytes.size() - sizeof(reply));
}

// Rank 0 and rank 1 of a job of two, while `stranger` runs; both must join nevertheless.
void checkUndisturbed(const std::function<void(const std::string& name)>& stranger) {
  const std::string name = newJobName();
  std::string first;
  std::thread rank0([&] { first = joinAll({{name, 0, 2, 30}})[0]; });
  stranger(name);
  CHECK(joinAll({{name, 1, 2, 30}})[0] == "");
  rank0.join();
  CHECK(first == "");
}

TEST_CASE("ranks that do not come are named at all that came, within the limit") {
  const std::string name = newJobName();
  const int64_t begin = monotonicNanoseconds();
  const auto texts = joinAll({{name, 0, 4, 0.3}, {name, 2, 4, 0.3}});
  CHECK(texts[0] == fmt::format("waited 0.3 s for all 4 ranks of job '{}' to join; missing: 1, 3", name));
  CHECK(texts[1] == texts[0]);
  CHECK(monotonicNanoseconds() - begin < 30'000'000'000);  // a hang, even on a busy machine
}

TEST_CASE("a rank 0 that does not come is an error within the limit") {
  const std::string name = newJobName();
  CHECK(joinAll({{name, 1, 2, 0.1}})[0] == fmt::format("waited 0.1 s for rank 0 of job '{}' to join", name));
}

TEST_CASE("a limit that is no number of seconds above 0 is an error, and nobody hangs") {
  const std::string name = newJobName();
  CHECK(joinAll({{name, 1, 2, -1}})[0] == "a time limit of -1 s, expected more than 0");
  CHECK(joinAll({{name, 1, 2, std::nan("")}})[0] == "a time limit of nan s, expected more than 0");
}

TEST_CASE("a limit that no clock can count to lets ranks come") {
  for (const double seconds : {9.3e9, 1e300, std::numeric_limits<double>::infinity()}) {
    const std::string name = newJobName();
    CHECK(joinAll({{name, 0, 2, seconds}, {name, 1, 2, seconds}}) == std::vector<std::string>{"", ""});
  }
}

TEST_CASE("ranks come in any order, rank 0 last") {
  const std::string name = newJobName();
  std::vector<std::string> early;
  std::thread others([&] { early = joinAll({{name, 2, 3, 30}, {name, 1, 3, 30}}); });
  usleep(100'000);
  CHECK(joinAll({{name, 0, 3, 30}})[0] == "");
  others.join();
  CHECK(early == std::vector<std::string>{"", ""});
}

TEST_CASE("ranks that expect different numbers of ranks are told so, all of them") {
  const std::string name = newJobName();
  const auto texts = joinAll({{name, 0, 3, 30}, {name, 2, 4, 30}});
  CHECK(texts[0] ==
        fmt::format("rank 2 (process {}) of job '{}' expects 4 ranks, but rank 0 expects 3", getpid(), name));
  CHECK(texts[1] == texts[0]);
}

TEST_CASE("a rank that comes twice is an error at both and at rank 0") {
  const std::string name = newJobName();
  const auto texts = joinAll({{name, 0, 3, 30}, {name, 1, 3, 30}, {name, 1, 3, 30}});
  CHECK(texts[0] ==
        fmt::format("rank 1 of job '{0}' joined twice: as process {1} and as process {1}", name, getpid()));
  CHECK(texts[1] == texts[0]);
  CHECK(texts[2] == texts[0]);
}

TEST_CASE("two that are rank 0 of one job: the second is told so") {
  const std::string name = newJobName();
  std::string first;
  std::thread rank0([&] { first = joinAll({{name, 0, 2, 30}})[0]; });
  FileDescriptor there = visit(name);  // rank 0 waits
  CHECK(joinAll({{name, 0, 2, 30}})[0] ==
        fmt::format("another process waits as rank 0 of job '{}' already", name));
  CHECK(joinAll({{name, 1, 2, 30}})[0] == "");
  rank0.join();
  CHECK(first == "");
}

TEST_CASE("another version, and a rank that the job does not have, are errors at both ends") {
  const struct {
    RendezvousHello hello;
    const char* text;
  } kCases[] = {
      {{kRendezvousMagic, 9, 1, 2, 0},
       "process {} tried to join job '{}' with version 9 of shared memory, but rank 0 has version 1"},
      {{kRendezvousMagic, 1, 2, 2, 0}, "process {} tried to join job '{}' as rank 2, expected 1 to 1"},
      {{kRendezvousMagic, 1, 0, 2, 0}, "process {} tried to join job '{}' as rank 0, expected 1 to 1"},
      {{kRendezvousMagic, 1, -5, 2, 0}, "process {} tried to join job '{}' as rank -5, expected 1 to 1"},
  };
  for (const auto& wrong : kCases) {
    const std::string name = newJobName();
    std::string first;
    std::thread rank0([&] { first = joinAll({{name, 0, 2, 30}})[0]; });
    FileDescriptor socket = visit(name);
    REQUIRE(sendMessage(socket, bytesOf(wrong.hello)));
    const std::string expected = fmt::format(fmt::runtime(wrong.text), getpid(), name);
    CHECK(refusalOf(socket) == expected);
    rank0.join();
    CHECK(first == expected);
  }
}

TEST_CASE("a stranger that says nothing holds nobody up, nor do a hundred") {
  std::vector<FileDescriptor> strangers;
  checkUndisturbed([&](const std::string& name) {
    for (int i = 0; i < 100; ++i) strangers.push_back(visit(name));
  });
}

TEST_CASE("a stranger that hangs up, or says anything else, is sent away and disturbs nobody") {
  checkUndisturbed([](const std::string& name) {
    visit(name).reset();
    const std::string longText(100'000, 'x');
    for (const std::string_view text : {"G", "GET / HTTP/1.1\r\n\r\n", longText.c_str()}) {
      FileDescriptor socket = visit(name);
      REQUIRE(sendMessage(socket, std::as_bytes(std::span(text))));
      CHECK_THAT(refusalOf(socket), Catch::Matchers::Contains("expected the greeting of a rank of job"));
    }
  });
}

TEST_CASE("the end of a rank before all have come is an error at all others at once") {
  const std::string name = newJobName();
  Processes processes(3, [&](const Child& child) {
    if (child.rank() == 2) {  // greets as rank 2, and dies
      const RendezvousHello hello{kRendezvousMagic, kRendezvousVersion, 2, 4, 0};
      const FileDescriptor socket = visit(name);
      sendMessage(socket, bytesOf(hello));
      usleep(200'000);
      _exit(9);
    }
    return joinAndRun({.name = name, .rank = child.rank(), .size = 4, .timeoutSeconds = 60},
                      [](Transport&) { return "joined"; });
  });
  const auto ends = processes.wait(20);
  const std::string expected =
      fmt::format("cannot join: rank 2 (process {}) of job '{}' has ended before all ranks had joined",
                  processes.pid(2), name);
  CHECK(ends[0].text == expected);
  // rank 1 may have come after that: then nobody waits there
  CHECK((ends[1].text == expected || ends[1].late));
}

TEST_CASE("the end of rank 0 before all have come is an error at all others at once") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    if (child.rank() == 1) child.say("comes");
    return joinAndRun({.name = name, .rank = child.rank(), .size = 3, .timeoutSeconds = 60},
                      [](Transport&) { return "joined"; });
  });
  visit(name).reset();
  REQUIRE(processes.awaitLine(1, "comes"));
  usleep(100'000);
  processes.send(0, SIGKILL);
  CHECK(processes.wait(20)[1].text ==
        fmt::format("cannot join: rank 0 of job '{}' has ended before all ranks had joined", name));
}

TEST_CASE("what waits under the name and is no rank 0 is an error, also if it says nothing") {
  const std::string name = newJobName();
  auto listener = listenLocally(rendezvousName(name), 4);
  REQUIRE((listener && *listener));
  std::string text;
  std::thread rank1([&] { text = joinAll({{name, 1, 2, 30}})[0]; });
  REQUIRE(awaitReadable(*listener, 5'000'000'000));
  auto socket = acceptLocally(*listener);
  REQUIRE((socket && *socket));
  REQUIRE(sendMessage(*socket, std::as_bytes(std::span("hello", 5))));
  rank1.join();
  CHECK(text == fmt::format("the process that waits as rank 0 of job '{}' is not a Sluice rank", name));
  CHECK(joinAll({{name, 1, 2, 0.1}})[0] ==
        fmt::format("waited 0.1 s for the other ranks of job '{}' to join", name));
}

// Only root can, and not in every sandbox.
bool canBecomeAnother() {
  Processes trial(1, [](const Child&) { return std::string(setuid(65534) == 0 ? "yes" : "no"); });
  return geteuid() == 0 && trial.wait()[0].text == "yes";
}

TEST_CASE("a process of another user is sent away, and disturbs nobody") {
  if (!canBecomeAnother()) {
    WARN("not run: this process cannot become another user");
    return;
  }
  const std::string name = newJobName(), address = rendezvousName(name);
  Processes processes(3, [&](const Child& child) {
    if (child.rank() < 2) {
      if (child.rank() == 1) usleep(300'000);
      return joinAndRun({.name = name, .rank = child.rank(), .size = 2}, [](Transport&) { return ""; });
    }
    if (setuid(65534) != 0) return std::string("cannot become another user");
    FileDescriptor socket;
    for (int i = 0; i < 5000 && !socket; ++i, usleep(1000)) socket = std::move(*connectLocally(address));
    return refusalOf(socket);
  });
  const auto ends = processes.wait(20);
  CHECK(ends[0].text == "");
  CHECK(ends[1].text == "");
  CHECK(ends[2].text == fmt::format("job '{}' is of user 0, not of user 65534", name));
}

TEST_CASE("a name that another user has taken is an error") {
  if (!canBecomeAnother()) {
    WARN("not run: this process cannot become another user");
    return;
  }
  const std::string name = newJobName(), address = rendezvousName(name);
  Processes processes(1, [&](const Child& child) {
    if (setuid(65534) != 0) return std::string("cannot become another user");
    auto listener = listenLocally(address, 4);
    child.say("listens");
    sleep(20);
    return std::string();
  });
  REQUIRE(processes.awaitLine(0, "listens"));
  CHECK(joinAll({{name, 1, 2, 5}})[0] ==
        fmt::format("a process of user 65534 waits as rank 0 of job '{}' of user 0", name));
}

TEST_CASE("two jobs of one user at once, and one after another under one name, do not disturb each other") {
  const std::string names[] = {newJobName(), newJobName()};
  Processes processes(6, [&](const Child& child) {
    const int job = child.rank() % 2, rank = child.rank() / 2;
    for (int round = 0; round < 20; ++round) {
      const std::string text =
          joinAndRun({.name = names[job], .rank = rank, .size = 3}, [&](Transport& transport) {
            const SymmetricHandle memory = *transport.allocate(64);
            for (int to = 0; to < 3; ++to) transport.signal(to, memory, 0, job == 0 ? 1 : 1000);
            auto* word = reinterpret_cast<uint64_t*>(transport.local(memory));
            const auto sum = [&] { return std::atomic_ref<uint64_t>(*word).load(); };
            const uint64_t expected = job == 0 ? 3 : 3000;
            return parkUntil(transport, [&] { return sum() == expected; })
                       ? std::string()
                       : fmt::format("the sum of job {} is {}", job, sum());
          });
      if (!text.empty()) return fmt::format("round {}: {}", round, text);
    }
    return std::string();
  });
  for (const ChildEnd& end : processes.wait(60)) CHECK((end.returned && end.text == ""));
}

TEST_CASE("limits of this process are errors, not crashes") {
  const std::string name = newJobName();
  const auto joinWithLimit = [&](const Child& child, int resource, rlim_t limit) {
    const rlimit limits{limit, limit};
    if (setrlimit(static_cast<__rlimit_resource_t>(resource), &limits) != 0) return std::string("no limit");
    return joinAndRun({.name = name, .rank = child.rank(), .size = 1}, [](Transport& transport) {
      auto small = transport.allocate(4096);
      auto large = transport.allocate(size_t{1} << 36);
      return std::string(small && !large ? large.error().message : "too much was given");
    });
  };
  {
    Processes tiny(1, [&](const Child& child) { return joinWithLimit(child, RLIMIT_FSIZE, 1 << 20); });
    CHECK(tiny.wait()[0].text ==
          "cannot join: the limit of file sizes is 1048576 bytes, but shared memory needs at least 16777216");
  }
  {
    Processes modest(1, [&](const Child& child) { return joinWithLimit(child, RLIMIT_FSIZE, 1 << 30); });
    CHECK_THAT(modest.wait()[0].text, Catch::Matchers::Contains("but shared memory has room for"));
  }
  {
    Processes few(1, [&](const Child& child) { return joinWithLimit(child, RLIMIT_NOFILE, 3); });
    CHECK(few.wait()[0].text == "cannot join: cannot make a local socket: Too many open files");
  }
}

}  // namespace
}  // namespace sluice
