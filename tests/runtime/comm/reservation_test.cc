// Reserved memory, small and large: aligned, zero, writable to the last byte, and counted.
#include "runtime/comm/reservation.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/base/huge_pages.h"

namespace sluice {
namespace {

size_t misalignment(const Reservation& memory, size_t alignment) {
  return reinterpret_cast<uintptr_t>(memory.data()) % alignment;
}

TEST_CASE("reserved memory is zero and can be written to its last byte") {
  for (const size_t bytes :
       {size_t{1}, size_t{4097}, kHugePageBytes * 2 - 1, kHugePageBytes * 2, kHugePageBytes * 5 + 123}) {
    auto memory = Reservation::reserve(bytes);
    REQUIRE(memory.ok());
    CHECK(memory->size() == bytes);
    CHECK(misalignment(*memory, wantsHugePages(bytes) ? kHugePageBytes : 4096) == 0);
    CHECK(memory->data()[bytes - 1] == std::byte{0});
    std::memset(memory->data(), 1, bytes);
    CHECK(memory->data()[bytes - 1] == std::byte{1});
  }
}

TEST_CASE("reserved memory moves with its owner and goes with it") {
  auto first = Reservation::reserve(kHugePageBytes * 3);
  REQUIRE(first.ok());
  std::byte* const data = first->data();
  data[7] = std::byte{9};
  Reservation second = std::move(*first);
  CHECK(second.data() == data);
  CHECK(first->data() == nullptr);
  Reservation third;
  third = std::move(second);
  CHECK(third.data()[7] == std::byte{9});
}

TEST_CASE("what no address space holds is an error") {
  CHECK_FALSE(Reservation::reserve(std::numeric_limits<size_t>::max()).ok());
  CHECK_FALSE(Reservation::reserve(std::numeric_limits<size_t>::max() - kHugePageBytes).ok());
}

TEST_CASE("large memory is counted among that with huge pages, or it is said why not") {
  const HugePageUse before = hugePageUse();
  constexpr size_t kBytes = kHugePageBytes * 16;
  auto memory = Reservation::reserve(kBytes);
  REQUIRE(memory.ok());
  std::memset(memory->data(), 1, kBytes);
  const HugePageUse after = hugePageUse();
  INFO(describe(after));
  if (after.refusal.empty()) {
    CHECK(after.residentBytes - before.residentBytes >= static_cast<int64_t>(kBytes));
    CHECK(after.hugeBytes <= after.residentBytes);
  }
  refuseHugePages();
  CHECK(hugePageUse().refusal == "switched off for this process");
}

TEST_CASE("the use of huge pages is said in MiB, with the reason where there are none") {
  CHECK(describe({int64_t{400} << 20, int64_t{312} << 20, {}}) == "huge pages: 312 of 400 MiB");
  CHECK(describe({int64_t{400} << 20, 0, "this system has none"}) ==
        "huge pages: 0 of 400 MiB: this system has none");
}

}  // namespace
}  // namespace sluice
