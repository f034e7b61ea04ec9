// Every implementation of sums of scalars.
#include <bit>
#include <catch2/catch.hpp>

#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

TEST_CASE("every sum of scalars adds the parts of a position in order, and position -1 gives 0") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t parts : {1, 2, 3, 8})
      for (int32_t count : {0, 1, 7, 33}) {
        INFO(by.name << " parts " << parts << " count " << count);
        constexpr int64_t kElements = 29, kStride = 31;
        const std::vector<float> src = randomFloats(random, (parts - 1) * kStride + kElements);
        std::vector<int32_t> position(static_cast<size_t>(count));
        for (int32_t& p : position) p = std::max(static_cast<int32_t>(random() % (kElements + 5)) - 5, -1);
        F32Matrix dst(1, count, count, kF32Canary, true), want = dst;
        for (int32_t i = 0; i < count; ++i) {
          float sum = position[i] < 0 ? 0 : src[position[i]];
          for (int32_t part = 1; part < parts && position[i] >= 0; ++part)
            sum += src[position[i] + part * kStride];
          want.at(0, i) = sum;
        }
        by.kernels.sumScalars({src.data(), position.data(), dst.data(), count, parts, kStride});
        CHECK(dst.sameBits(want));
        CHECK(dst.gapsAreUntouched());
      }
}

TEST_CASE("a sum of one part passes the bits of its scalar") {
  const float src[] = {-0.0f, std::numeric_limits<float>::infinity(), std::bit_cast<float>(0x00000001u)};
  const int32_t position[] = {2, 0, -1, 1};
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    float dst[] = {NAN, NAN, NAN, NAN};
    by.kernels.sumScalars({src, position, dst, 4, 1, 3});
    CHECK(std::bit_cast<uint32_t>(dst[0]) == 1u);
    CHECK(std::bit_cast<uint32_t>(dst[1]) == 0x80000000u);
    CHECK(std::bit_cast<uint32_t>(dst[2]) == 0u);
    CHECK(dst[3] == src[1]);
  }
}

}  // namespace
}  // namespace sluice::ops
