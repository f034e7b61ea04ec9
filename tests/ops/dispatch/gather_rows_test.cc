// Every implementation of the gather of rows against the reference.
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

TEST_CASE("every gather copies the rows its index names, whole, zeros for -1, and nothing else") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 2, 17, 130})
      for (int64_t bytes : {0, 1, 2, 4, 31, 64, 257})
        for (int32_t divisor : {1, 3, 8}) {
          constexpr int32_t kSourceRows = 23;
          Matrix<std::byte> src(kSourceRows, bytes, bytes + 5, std::byte{0x5a}, false);
          for (int32_t r = 0; r < kSourceRows; ++r)
            for (int64_t i = 0; i < bytes; ++i) src.at(r, i) = std::byte(random() & 0xff);
          std::vector<int32_t> index(rows);
          for (int32_t& i : index) i = static_cast<int32_t>(random() % (kSourceRows * divisor + 1)) - 1;
          Matrix<std::byte> dst(rows, bytes, bytes + 3, std::byte{0xa5}, true);
          const GatherRowsArgs args = {src.data(), src.ld(), index.data(), divisor,
                                       dst.data(), dst.ld(), bytes,        rows};
          by.kernels.gatherRows(args);
          std::vector<std::byte> want(static_cast<size_t>(rows * bytes));
          gatherRowsReference(args, want.data());
          bool same = true;
          for (int32_t r = 0; r < rows && bytes > 0; ++r)
            same = same && std::memcmp(&dst.at(r, 0), &want[r * bytes], static_cast<size_t>(bytes)) == 0;
          INFO(by.name << " rows " << rows << " bytes " << bytes << " divisor " << divisor);
          CHECK(same);
          CHECK(dst.gapsAreUntouched());
        }
}

TEST_CASE("a gather without an index copies row by row") {
  for (const Implementation& by : implementations())
    for (int64_t bytes : {4, 6}) {
      Matrix<std::byte> src(9, bytes, bytes + 2, std::byte{0x5a}, false);
      for (int32_t r = 0; r < 9; ++r)
        for (int64_t i = 0; i < bytes; ++i) src.at(r, i) = std::byte(r * 16 + i);
      Matrix<std::byte> dst(9, bytes, bytes, std::byte{0xa5}, true);
      by.kernels.gatherRows({src.data(), src.ld(), nullptr, 1, dst.data(), dst.ld(), bytes, 9});
      INFO(by.name << " bytes " << bytes);
      bool same = true;
      for (int32_t r = 0; r < 9; ++r)
        for (int64_t i = 0; i < bytes; ++i) same = same && dst.at(r, i) == src.at(r, i);
      CHECK(same);
    }
}

TEST_CASE("a gather of no bytes may have no memory at all") {
  for (const Implementation& by : implementations()) {
    const int32_t index[] = {0, 1};
    by.kernels.gatherRows({nullptr, 0, index, 1, nullptr, 0, 0, 2});
    by.kernels.gatherRows({nullptr, 0, nullptr, 1, nullptr, 0, 16, 0});
  }
  SUCCEED("no access");
}

}  // namespace
}  // namespace sluice::ops
