#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/gpu/row_work_case.h"
#include "tests/gpu/run_on_model.h"

namespace sluice::gpu {
namespace {

constexpr uint64_t kCases = casesOf(40);

TEST_CASE("work on rows and copies are right for odd sizes and addresses") {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    CAPTURE(seed);
    CHECK(runOnModel(RowWorkCase(seed), 1 + static_cast<int>(seed % 3), seed) == "");
  }
}

TEST_CASE("sums of columns are right for many rows, and over several blocks of columns") {
  for (const bool isFp32 : {false, true})
    for (const bool accumulates : {false, true}) {
      RowWorkSizes sizes{.op = RowOp::kColumnSum, .rows = 333, .columns = 19};
      sizes.isFp32 = isFp32;
      sizes.accumulates = accumulates;
      RowWorkSizes wide = sizes, empty = sizes;
      wide.rows = 9;
      wide.columns = 603;
      empty.rows = 0;
      CAPTURE(isFp32, accumulates);
      CHECK(runOnModel(RowWorkCase(7, {sizes, wide, empty}), 2, 7) == "");
    }
}

TEST_CASE("activations of all kinds and their gradients are right") {
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::MAX); ++kind) {
    RowWorkSizes act{.op = RowOp::kActivation, .rows = 7, .columns = 72};
    act.kind = static_cast<ActivationKind>(kind);
    RowWorkSizes grad = act;
    grad.op = RowOp::kActivationGrad;
    CAPTURE(kind);
    CHECK(runOnModel(RowWorkCase(static_cast<uint64_t>(kind), {act, grad}), 2, 8) == "");
  }
}

TEST_CASE("1 and 3 blocks give the same bits of work on rows, whatever the order") {
  for (uint64_t seed = 101; seed <= 106; ++seed) {
    CAPTURE(seed);
    RowWorkCase it(seed);
    REQUIRE(runOnModel(it, 1, seed) == "");
    const std::vector<std::vector<std::byte>> results = it.results();
    for (const int blocks : {1, 3}) {
      REQUIRE(runOnModel(it, blocks, seed + 1) == "");
      CHECK(it.results() == results);
    }
  }
}

}  // namespace
}  // namespace sluice::gpu
