#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/gpu/run_on_model.h"
#include "tests/gpu/weight_grad_case.h"

namespace sluice::gpu {
namespace {

constexpr GradForm kForms[] = {GradForm::kFp32, GradForm::kFp32Added, GradForm::kBf16, GradForm::kBf16Added};

constexpr uint64_t kCases = casesOf(24);

TEST_CASE("weight gradients are right for ragged rows and sizes that are no multiple of a tile") {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    CAPTURE(seed);
    CHECK(runOnModel(WeightGradCase(seed), 3, seed) == "");
  }
}

TEST_CASE("rows around the edges of stages and slots count, and an expert's end where it ends") {
  for (const GradForm form : kForms)
    for (const int columns : {128, 256}) {
      CAPTURE(static_cast<int>(form), columns);
      CHECK(runOnModel(WeightGradCase(7, {{1, 63, 64, 65, 0, 129}, 130, 66, columns, form}), 2, 7) == "");
    }
}

TEST_CASE("experts without rows have gradients of zeros, and add nothing") {
  for (const GradForm form : kForms)
    for (const int columns : {128, 256}) {
      CAPTURE(static_cast<int>(form), columns);
      CHECK(runOnModel(WeightGradCase(8, {{0, 5, 0, 0}, 70, 131, columns, form}), 2, 8) == "");
      CHECK(runOnModel(WeightGradCase(9, {{0, 0}, 128, 256, columns, form}), 1, 9) == "");
    }
}

TEST_CASE("1 and 3 blocks give the same bits of weight gradients, whatever the order") {
  for (const GradForm form : kForms) {
    CAPTURE(static_cast<int>(form));
    WeightGradCase it(10, {{200, 0, 77}, 150, 270, form == GradForm::kFp32 ? 256 : 128, form});
    REQUIRE(runOnModel(it, 1, 1) == "");
    const std::vector<std::byte> grad = it.grad();
    for (const int blocks : {1, 3}) {
      REQUIRE(runOnModel(it, blocks, 10 + static_cast<uint64_t>(blocks)) == "");
      CHECK(it.grad() == grad);
    }
  }
}

}  // namespace
}  // namespace sluice::gpu
