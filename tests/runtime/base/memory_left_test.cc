#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/machine.h"

namespace sluice {
namespace {

// A folder with the files that the system has in /proc and /sys.
class System {
 public:
  System() { std::filesystem::remove_all(root); }
  void says(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  MemoryLeft left() const { return memoryLeft(root); }
  const std::string root = std::string(std::getenv("TEST_TMPDIR")) + "/system";
};

TEST_CASE("what is not known limits nothing") { CHECK(System().left().bytes == INT64_MAX); }

TEST_CASE("a machine has what is available and its free swap") {
  System system;
  system.says("/proc/meminfo", "MemTotal:  900 kB\nMemAvailable:     300 kB\nSwapFree:  20 kB\n");
  CHECK(system.left().bytes == 320 * 1024);
  CHECK(system.left().of == "this machine");
}

TEST_CASE("a control group or one above it has less, and gives up pages of files but not of shared memory") {
  System system;
  system.says("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  system.says("/proc/self/cgroup", "0::/pod/job\n");
  system.says("/sys/fs/cgroup/pod/job/memory.max", "max\n");
  system.says("/sys/fs/cgroup/pod/job/memory.current", "100\n");
  CHECK(system.left().of == "this machine");
  system.says("/sys/fs/cgroup/pod/memory.max", "5000\n");
  system.says("/sys/fs/cgroup/pod/memory.current", "4000\n");
  CHECK(system.left().bytes == 1000);
  CHECK(system.left().of == "its container");
  system.says("/sys/fs/cgroup/pod/memory.stat", "anon 2500\nfile 1500\nshmem 400\n");
  CHECK(system.left().bytes == 1000 + 1100);
  system.says("/sys/fs/cgroup/pod/memory.current", "9000\n");
  CHECK(system.left().bytes == 0);
}

TEST_CASE("groups of the older kind limit, too") {
  System system;
  system.says("/proc/self/cgroup", "5:cpu:/a\n4:memory:/a\n");
  system.says("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700\n");
  system.says("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "300\n");
  system.says("/sys/fs/cgroup/memory/a/memory.stat", "total_cache 60\ntotal_shmem 10\n");
  CHECK(system.left().bytes == 450);
}

TEST_CASE("a limit of the process counts what it uses") {
  System system;
  system.says("/proc/self/status", "VmSize:\t  1000 kB\nVmData:\t 10 kB\n");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  constexpr int64_t kLimit = int64_t{1} << 46;  // more than AddressSanitizer's shadow takes
  const rlimit less{kLimit, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &less) == 0);
  const MemoryLeft left = system.left();
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(left.bytes == kLimit - 1000 * 1024);
  CHECK(left.of == "RLIMIT_AS");
}

TEST_CASE("this machine has some left") {
  const MemoryLeft left = memoryLeft();
  CHECK(left.bytes > 0);
  CHECK(left.bytes < INT64_MAX);
}

}  // namespace
}  // namespace sluice
