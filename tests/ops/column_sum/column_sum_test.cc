// Every implementation of sums of columns against the reference.
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

struct Case {
  int32_t rows, n;
  Bf16Matrix a;
  std::vector<float> scale;

  Case(Random& random, int32_t count, int32_t columns, bool scaled, int64_t gap = 5)
      : rows(count),
        n(columns),
        a(randomInput(random, rows, n, n + gap, gap)),
        scale(scaled ? randomFloats(random, rows) : std::vector<float>{}) {}

  ColumnSumArgs args(Result c, bool accumulate = false) const {
    return {.a = a.data(),
            .lda = a.ld(),
            .scale = scale.empty() ? nullptr : scale.data(),
            .c = c,
            .rows = rows,
            .n = n,
            .accumulate = accumulate};
  }
};

TEST_CASE("every column sum agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 2, 17, 130})
      for (int32_t n : {0, 1, 7, 8, 15, 16, 31, 33, 64, 65, 100, 257})
        for (bool scaled : {false, true}) {
          INFO(by.name << " rows " << rows << " n " << n << (scaled ? " scaled" : ""));
          const Case test(random, rows, n, scaled, scaled ? 5 : 0);
          F32Matrix c(1, n, n, kF32Canary, true);
          by.kernels.columnSum(test.args({c.data(), c.ld()}));
          std::vector<double> want(static_cast<size_t>(n));
          columnSumReference(test.args({c.data(), c.ld()}), want.data());
          int wrong = 0;
          for (int32_t j = 0; j < n; ++j)
            wrong += !agrees(c.at(0, j), want[j], kF32Rounding * (rows + 1) * rows);
          CHECK(wrong == 0);
          CHECK(c.gapsAreUntouched());
        }
}

TEST_CASE("a column sum has the same bits however its columns are cut") {
  Random random(2);
  for (const Implementation& by : implementations())
    for (bool scaled : {false, true}) {
      INFO(by.name << (scaled ? " scaled" : ""));
      const Case test(random, 97, 211, scaled);
      F32Matrix whole(1, 211, 211, kF32Canary, true), pieces = whole;
      by.kernels.columnSum(test.args({whole.data(), 211}));
      int32_t col = 0;
      for (int32_t columns : {1, 8, 64, 67, 71}) {
        ColumnSumArgs part = test.args({pieces.data() + col, 211});
        part.a += col;
        part.n = columns;
        by.kernels.columnSum(part);
        col += columns;
      }
      CHECK(pieces.sameBits(whole));
      CHECK(pieces.gapsAreUntouched());
    }
}

TEST_CASE("a column sum is added to what was there in one addition, and bf16 is rounded once") {
  Random random(3);
  for (const Implementation& by : implementations())
    for (bool accumulate : {false, true})
      for (int32_t n : {1, 33, 130}) {
        INFO(by.name << " n " << n << (accumulate ? " accumulates" : ""));
        const Case test(random, 19, n, true);
        F32Matrix sum(1, n, n, kF32Canary, true), wide = sum, wantWide = sum;
        Bf16Matrix narrow(1, n, n, kBf16Canary, true), wantNarrow = narrow;
        by.kernels.columnSum(test.args({sum.data(), n}));
        for (int32_t j = 0; j < n; ++j) {
          wide.at(0, j) = uniform(random, -3, 3);
          narrow.at(0, j) = toBFloat16(wide.at(0, j));
          const float before = accumulate ? wide.at(0, j) : 0;
          const float beforeNarrow = accumulate ? toFloat(narrow.at(0, j)) : 0;
          wantWide.at(0, j) = before + sum.at(0, j);
          wantNarrow.at(0, j) = toBFloat16(beforeNarrow + sum.at(0, j));
        }
        by.kernels.columnSum(test.args({wide.data(), n}, accumulate));
        by.kernels.columnSum(test.args({narrow.data(), n}, accumulate));
        CHECK(wide.sameBits(wantWide));
        CHECK(narrow.sameBits(wantNarrow));
        CHECK(wide.gapsAreUntouched());
        CHECK(narrow.gapsAreUntouched());
      }
}

TEST_CASE("a column sum without rows writes zeros, or touches nothing where it accumulates") {
  Random random(4);
  for (const Implementation& by : implementations())
    for (bool accumulate : {false, true}) {
      INFO(by.name << (accumulate ? " accumulates" : ""));
      const Case test(random, 0, 37, false);
      F32Matrix wide(1, 37, 37, kF32Canary, true), wantWide = wide;
      Bf16Matrix narrow(1, 37, 37, kBf16Canary, true), wantNarrow = narrow;
      for (int32_t j = 0; j < 37; ++j) {
        wide.at(0, j) = -0.0f;
        narrow.at(0, j) = toBFloat16(-0.0f);
        wantWide.at(0, j) = accumulate ? -0.0f : 0.0f;
        wantNarrow.at(0, j) = toBFloat16(wantWide.at(0, j));
      }
      by.kernels.columnSum(test.args({wide.data(), 37}, accumulate));
      by.kernels.columnSum(test.args({narrow.data(), 37}, accumulate));
      CHECK(wide.sameBits(wantWide));
      CHECK(narrow.sameBits(wantNarrow));
    }
}

TEST_CASE("a column sum keeps subnormal numbers and passes NaN to its column only") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Bf16Matrix a(3, 70, 70, kBf16NaN, false);
    for (int32_t r = 0; r < 3; ++r)
      for (int32_t j = 0; j < 70; ++j) a.at(r, j) = {1};  // 2^-133
    a.at(1, 66) = kBf16NaN;
    F32Matrix c(1, 70, 70, kF32Canary, true);
    by.kernels.columnSum(
        {.a = a.data(), .lda = 70, .scale = nullptr, .c = {c.data(), 70}, .rows = 3, .n = 70});
    int wrong = 0;
    for (int32_t j = 0; j < 70; ++j) wrong += j == 66 ? !std::isnan(c.at(0, j)) : c.at(0, j) != 3 * 0x1p-133f;
    CHECK(wrong == 0);
  }
}

TEST_CASE("the reference of a column sum starts from what was there where it accumulates") {
  const BFloat16 a[] = {toBFloat16(2), toBFloat16(3)};
  const float scale[] = {1, -2};
  float c = 0.5f;
  double result = 0;
  columnSumReference({a, 1, scale, {&c, 1}, 2, 1, true}, &result);
  CHECK(result == -3.5);
  columnSumReference({a, 1, nullptr, {&c, 1}, 2, 1}, &result);
  CHECK(result == 5);
}

}  // namespace
}  // namespace sluice::ops
