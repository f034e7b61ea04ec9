// A job that has ended, well or not, must leave nothing.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "runtime/comm/shm/rendezvous.h"
#include "tests/runtime/comm/shm/joined_ranks.h"

namespace sluice {
namespace {

std::set<std::string> namesIn(const char* directory) {
  std::set<std::string> names;
  if (DIR* open = opendir(directory)) {
    while (const dirent* entry = readdir(open)) names.insert(entry->d_name);
    closedir(open);
  }
  return names;
}

int linesWith(const char* file, const std::string& text) {
  int count = 0;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) count += line.find(text) != std::string::npos;
  return count;
}

struct Holdings {
  std::set<std::string> files = namesIn("/proc/self/fd");
  size_t threads = namesIn("/proc/self/task").size();
  int mappings = linesWith("/proc/self/maps", "memfd:sluice");

  std::string differenceFrom(const Holdings& before) const {
    if (files != before.files)
      return fmt::format("{} open files, before {}", files.size(), before.files.size());
    if (threads != before.threads) return fmt::format("{} threads, before {}", threads, before.threads);
    return mappings == before.mappings ? "" : fmt::format("{} mappings", mappings);
  }
};

// The end of a thread is seen a little after its join.
std::string leftSince(const Holdings& before) {
  for (int i = 0; i < 1000; ++i, usleep(1000))
    if (Holdings().differenceFrom(before).empty()) return "";
  return Holdings().differenceFrom(before);
}

// Files of shared memory of this program that have a name anywhere.
std::string namedMemory() {
  std::string names;
  for (const std::string& name : namesIn("/dev/shm"))
    if (name.find("sluice") != std::string::npos) names += name + " ";
  return names;
}

TEST_CASE("a job that ended has left no open file, thread or mapping in its processes") {
  const std::string name = newJobName();
  Processes processes(3, [&](const Child& child) {
    {
      std::thread([] {}).join();
    }  // what the first thread of a process leaves
    const Holdings before;
    for (int round = 0; round < 3; ++round) {
      const std::string text =
          joinAndRun({.name = name, .rank = child.rank(), .size = 3}, [&](Transport& transport) {
            const SymmetricHandle large = *transport.allocate(size_t{1} << 30);
            const SymmetricHandle small = *transport.allocate(100);
            transport.put(0, large, 4096 * static_cast<size_t>(1 + child.rank()), "x", 1);
            transport.signal(1, small, 0, 1);
            const Holdings during;
            if (during.mappings < 3 || during.threads == before.threads) return std::string("not joined");
            return namedMemory();
          });
      if (!text.empty()) return text;
      if (std::string left = leftSince(before); !left.empty()) return left;
    }
    return std::string();
  });
  for (const ChildEnd& end : processes.wait()) CHECK((end.returned ? end.text : "did not return") == "");
}

// Open files that a program started from here would inherit, beyond the first three.
std::set<std::string> inheritable() {
  std::set<std::string> files;
  for (const std::string& file : namesIn("/proc/self/fd")) {
    const int number = std::atoi(file.c_str());
    const int flags = number > 2 ? fcntl(number, F_GETFD) : -1;
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) files.insert(file);
  }
  return files;
}

TEST_CASE("a program that a rank starts inherits no open file of the job") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    const auto before = inheritable();
    const size_t filesBefore = namesIn("/proc/self/fd").size();
    return joinAndRun({.name = name, .rank = child.rank(), .size = 2}, [&](Transport&) {
      if (namesIn("/proc/self/fd").size() == filesBefore) return std::string("no open file was found");
      return std::string(inheritable() == before ? "" : "inherits");
    });
  });
  for (const ChildEnd& end : processes.wait()) CHECK((end.returned ? end.text : "did not return") == "");
}

TEST_CASE("a rendezvous that failed has left nothing either") {
  const std::string name = newJobName();
  Processes processes(2, [&](const Child& child) {
    const Holdings before;
    for (int round = 0; round < 3; ++round)
      if (joinSharedMemory({.name = name, .rank = child.rank(), .size = 3, .timeoutSeconds = 0.05}))
        return std::string("joined without rank 2");
    return leftSince(before);
  });
  for (const ChildEnd& end : processes.wait()) CHECK((end.returned ? end.text : "did not return") == "");
}

TEST_CASE("nobody listens once all have met, and nothing of shared memory has a name, also after kill -9") {
  const std::string name = newJobName();
  Processes processes(3, [&](const Child& child) {
    return joinAndRun({.name = name, .rank = child.rank(), .size = 3}, [&](Transport& transport) {
      const SymmetricHandle memory = *transport.allocate(size_t{1} << 24);
      std::memset(transport.local(memory), 1, size_t{1} << 24);
      child.say("joined");
      sleep(60);
      return std::string();
    });
  });
  for (int rank = 0; rank < 3; ++rank) REQUIRE(processes.awaitLine(rank, "joined"));
  CHECK(linesWith("/proc/net/unix", rendezvousName(name)) == 0);
  CHECK(namedMemory() == "");
  for (int rank = 0; rank < 3; ++rank) processes.send(rank, SIGKILL);
  for (const ChildEnd& end : processes.wait()) CHECK(end.signal == SIGKILL);
  CHECK(namedMemory() == "");
}

TEST_CASE("while ranks meet, they can be seen: what the test before looks for is there") {
  const std::string name = newJobName();
  Processes processes(1, [&](const Child& child) {
    return joinAndRun({.name = name, .rank = child.rank(), .size = 2, .timeoutSeconds = 30},
                      [](Transport&) { return ""; });
  });
  int seen = 0;
  for (int i = 0; i < 3000 && seen == 0; ++i, usleep(1000))
    seen = linesWith("/proc/net/unix", rendezvousName(name));
  CHECK(seen > 0);
}

}  // namespace
}  // namespace sluice
