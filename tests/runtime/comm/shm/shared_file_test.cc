// The file that processes share, and its mappings: nobody else's, never smaller, where huge pages can be.
#include "runtime/comm/shm/shared_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <string>

#include "runtime/base/huge_pages.h"
#include "tests/testing/processes.h"

namespace sluice {
namespace {

FileDescriptor newFile() {
  auto file = makeSharedFile();
  INFO((file ? "" : file.error().message));
  REQUIRE(file.ok());
  return std::move(*file);
}

TEST_CASE("a shared file is for one user, goes to no program that is started, and takes no memory yet") {
  const FileDescriptor file = newFile();
  struct stat state;
  REQUIRE(fstat(file.get(), &state) == 0);
  CHECK((state.st_mode & 07777) == 0600);
  CHECK(state.st_nlink == 0);
  CHECK(state.st_blocks == 0);
  CHECK((fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(*sharedFileBytes(file.get()) == static_cast<size_t>(state.st_size));
}

TEST_CASE("nobody can make a shared file smaller under those who map it") {
  const FileDescriptor file = newFile();
  CHECK(ftruncate(file.get(), 4096) != 0);
}

TEST_CASE("two mappings of one place are one memory, of two places two") {
  const FileDescriptor file = newFile();
  auto first = SharedMapping::map(file.get(), 8192, 4096, 4096);
  auto same = SharedMapping::map(file.get(), 4096, 8192, 4096);
  REQUIRE((first && same));
  first->data()[5] = std::byte{9};
  CHECK(same->data()[4096 + 5] == std::byte{9});
  CHECK(same->data()[5] == std::byte{0});
}

TEST_CASE("a mapping for huge pages begins at one, ends where it shall, and leaves its neighbours alone") {
  const FileDescriptor file = newFile();
  for (int i = 0; i < 20; ++i) {
    auto mapping = SharedMapping::map(file.get(), 3 * kHugePageBytes, 2 * kHugePageBytes, kHugePageBytes);
    auto small = SharedMapping::map(file.get(), 0, 4096, 4096);  // moves the next place
    REQUIRE((mapping && small));
    CHECK(reinterpret_cast<uintptr_t>(mapping->data()) % kHugePageBytes == 0);
    CHECK(mapping->size() == 2 * kHugePageBytes);
    mapping->data()[mapping->size() - 1] = std::byte{1};
  }
}

TEST_CASE("what no address space holds is an error") {
  const FileDescriptor file = newFile();
  CHECK_FALSE(SharedMapping::map(file.get(), 0, size_t{1} << 60, 4096).ok());
}

TEST_CASE("a forked child does not have the mapping") {
  const FileDescriptor file = newFile();
  auto mapping = SharedMapping::map(file.get(), 0, 4096, 4096);
  REQUIRE(mapping.ok());
  const auto count = [] {
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);) found += line.find("memfd:sluice") != std::string::npos;
    return std::to_string(found);
  };
  CHECK(count() == "1");
  Processes child(1, [&](const Child&) { return count(); });
  CHECK(child.wait()[0].text == "0");
}

}  // namespace
}  // namespace sluice
