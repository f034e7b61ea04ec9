// Rows of experts in tensors of the caller: at multiples, and as many as the caller wants.
#include "ops/torch/row_layout.h"

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <random>

namespace sluice {
namespace {

constexpr int64_t kAsMany = -1;
constexpr int kColumns = 3;

// First rows of up to 5 experts, some of them without rows.
std::vector<int32_t> drawFirstRows(std::mt19937& random) {
  std::vector<int32_t> firstRows{0};
  for (auto experts = random() % 6; experts > 0; --experts)
    firstRows.push_back(firstRows.back() + static_cast<int32_t>(random() % 3 == 0 ? 0 : random() % 20));
  return firstRows;
}

std::vector<int32_t> numbered(int64_t rows) {
  std::vector<int32_t> values(static_cast<size_t>(rows * kColumns));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

constexpr int64_t kRowBytes = kColumns * sizeof(int32_t);

TEST_CASE("rows begin at multiples, pads are zero, and a gather gives the rows back") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::vector<int32_t> firstRows = drawFirstRows(random);
    const int64_t multiple = 1 + static_cast<int64_t>(random() % 8);
    const int64_t needed = makeRowLayout(firstRows, kAsMany, multiple)->rows;
    const int64_t fixed = random() % 2 == 0 ? kAsMany : needed + static_cast<int64_t>(random() % 9);
    const RowLayout layout = *makeRowLayout(firstRows, fixed, multiple);
    INFO("round " << round << ", multiple " << multiple << ", fixed " << fixed);
    REQUIRE(layout.received == firstRows.back());
    REQUIRE(layout.rows == (fixed == kAsMany ? needed : fixed));
    REQUIRE(layout.experts.size() + 1 == firstRows.size());

    const std::vector<int32_t> received = numbered(layout.received);
    std::vector<int32_t> expected(static_cast<size_t>(layout.rows * kColumns), 0);
    int64_t next = 0;
    for (size_t e = 0; e < layout.experts.size(); ++e) {
      const RowLayout::Expert& expert = layout.experts[e];
      REQUIRE(expert.first == next);
      REQUIRE(expert.first % multiple == 0);
      REQUIRE(expert.received == firstRows[e + 1] - firstRows[e]);
      REQUIRE((expert.padded >= expert.received && expert.padded < expert.received + multiple));
      std::copy_n(received.begin() + firstRows[e] * kColumns, expert.received * kColumns,
                  expected.begin() + expert.first * kColumns);
      next += expert.padded;
    }
    REQUIRE(needed == next);

    std::vector<int32_t> spread(expected.size(), -7);
    spreadRows(layout, received.data(), spread.data(), kRowBytes);
    REQUIRE(spread == expected);
    if (!layout.hasGaps()) {  // only pads at the end: in place
      std::vector<int32_t> inPlace(expected.size(), -7);
      std::copy(received.begin(), received.end(), inPlace.begin());
      spreadRows(layout, inPlace.data(), inPlace.data(), kRowBytes);
      REQUIRE(inPlace == expected);
    }
    std::vector<int32_t> gathered(received.size(), -7);
    gatherRows(layout, spread.data(), gathered.data(), kRowBytes);
    REQUIRE(gathered == received);
  }
}

TEST_CASE("rows have gaps only between those of experts that have some") {
  const auto hasGaps = [](std::vector<int32_t> firstRows) {
    return makeRowLayout(firstRows, kAsMany, 4)->hasGaps();
  };
  CHECK(hasGaps({0, 3, 5}));
  CHECK_FALSE(hasGaps({0, 4, 5}));
  CHECK_FALSE(hasGaps({0, 0, 3}));
  CHECK_FALSE(hasGaps({0, 3, 3}));
  CHECK_FALSE(hasGaps({0}));
}

TEST_CASE("more rows than the caller wants are an error") {
  const std::vector<int32_t> firstRows{0, 3, 8};
  CHECK(makeRowLayout(firstRows, 8, 1)->rows == 8);
  CHECK(makeRowLayout(firstRows, 7, 1).error().message == "num_permuted_tokens is 7, but there are 8 rows");
  CHECK(makeRowLayout(firstRows, 11, 4).error().message ==
        "num_permuted_tokens is 11, but there are 8 rows, 12 with experts padded to multiples of 4");
}

TEST_CASE("sizes near the limits of integers are errors, or right") {
  const std::vector<int32_t> firstRows{0, 3, 3, 8};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t base :
       {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 62, kMost / 2, kMost / 3, kMost - 8})
    for (int64_t off = -4; off <= 8; ++off) {
      const int64_t value = base + off;
      INFO("value " << value);
      CHECK_FALSE(makeRowLayout(firstRows, kAsMany, value));  // twice as many rows
      const bool fits = value <= kMaxRowsWithPads;
      CHECK(bool(makeRowLayout(firstRows, value, 1)) == fits);
      CHECK_FALSE(makeRowLayout(firstRows, value, value));
      if (!fits) CHECK_FALSE(makeRowLayout(firstRows, value, 4));
    }
  const int64_t half = kMaxRowsWithPads / 2;
  CHECK(makeRowLayout(firstRows, kAsMany, half)->rows == 2 * half);
  CHECK(makeRowLayout(firstRows, kAsMany, half + 1).error().message ==
        "pad_multiple is 1073741824, but 8 rows of 3 experts with pads are more than 2147483647");
  CHECK(makeRowLayout(std::vector<int32_t>{0, 0, 5}, kAsMany, kMaxRowsWithPads)->rows == kMaxRowsWithPads);
  CHECK(makeRowLayout(std::vector<int32_t>{0, 2147483647}, kAsMany, 1)->rows == 2147483647);
}

}  // namespace
}  // namespace sluice
