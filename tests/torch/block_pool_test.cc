#include "ops/torch/block_pool.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/base/huge_pages.h"

namespace sluice {

TEST_CASE("what was freed is taken again by what has its size") {
  const auto pool = BlockPool::create();
  auto first = *pool->take(5'000'000), second = *pool->take(5'000'000);
  CHECK(first != second);
  CHECK(reinterpret_cast<uintptr_t>(first.get()) % kHugePageBytes == 0);
  const std::byte* place = first.get();
  first.reset();
  const auto other = *pool->take(6'000'000);
  CHECK(other.get() != place);
  CHECK((*pool->take(5'000'000)).get() == place);
  CHECK(pool->bytes() == 16'000'000);
}

TEST_CASE("what is free can be freed") {
  const auto pool = BlockPool::create();
  const auto taken = *pool->take(5'000'000);
  {
    const auto block = *pool->take(6'000'000);
  }
  CHECK(pool->bytes() == 11'000'000);
  pool->trim();
  CHECK(pool->bytes() == 5'000'000);
  std::memset(taken.get(), 1, 5'000'000);
}

TEST_CASE("a block lives longer than whoever made the pool") {
  auto pool = BlockPool::create();
  const auto block = *pool->take(5'000'000);
  pool.reset();
  std::memset(block.get(), 1, 5'000'000);
  CHECK(block.get()[4'999'999] == std::byte{1});
}

TEST_CASE("memory that there is not is an error") {
  const auto pool = BlockPool::create();
  CHECK(pool->take(size_t{1} << 62).error().message == "cannot allocate 4611686018427387904 bytes");
  CHECK(pool->bytes() == 0);
}

}  // namespace sluice
