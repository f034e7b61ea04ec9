// Every implementation of dot products of rows against the reference.
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

TEST_CASE("every row dot agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 2, 17})
      for (int32_t n : {0, 1, 7, 8, 15, 16, 31, 33, 64, 65, 100, 257})
        for (bool added : {false, true}) {
          INFO(by.name << " rows " << rows << " n " << n << (added ? " added" : ""));
          const Bf16Matrix a = randomInput(random, rows, n, n + (added ? 5 : 0), 1);
          const Bf16Matrix b = randomInput(random, 1, n, n);
          const std::vector<float> addend = randomFloats(random, rows);
          F32Matrix c(1, rows, rows, kF32Canary, true);
          const RowDotArgs args = {a.data(), a.ld(), b.data(), added ? addend.data() : nullptr,
                                   c.data(), rows,   n};
          by.kernels.rowDot(args);
          std::vector<double> want(static_cast<size_t>(rows));
          rowDotReference(args, want.data());
          int wrong = 0;
          for (int32_t r = 0; r < rows; ++r)
            wrong += !agrees(c.at(0, r), want[r], kF32Rounding * (n + 2) * (n + 1));
          CHECK(wrong == 0);
          CHECK(c.gapsAreUntouched());
        }
}

TEST_CASE("a row dot has the same bits in any row and with any gap, and may write over its addend") {
  Random random(2);
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    constexpr int32_t kRows = 9, kN = 211;
    const Bf16Matrix a = randomInput(random, kRows, kN, kN + 6), b = randomInput(random, 1, kN, kN);
    const std::vector<float> addend = randomFloats(random, kRows);
    F32Matrix whole(1, kRows, kRows, kF32Canary, true), single = whole, over = whole;
    by.kernels.rowDot({a.data(), a.ld(), b.data(), addend.data(), whole.data(), kRows, kN});
    for (int32_t r = 0; r < kRows; ++r) {
      Bf16Matrix row(1, kN, kN, kBf16NaN, false, 3);
      for (int32_t j = 0; j < kN; ++j) row.at(0, j) = a.at(r, j);
      by.kernels.rowDot({row.data(), kN, b.data(), &addend[r], &single.at(0, r), 1, kN});
      over.at(0, r) = addend[r];
    }
    by.kernels.rowDot({a.data(), a.ld(), b.data(), over.data(), over.data(), kRows, kN});
    CHECK(single.sameBits(whole));
    CHECK(over.sameBits(whole));
  }
}

TEST_CASE("a row dot keeps subnormal numbers and passes NaN to its row only") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Bf16Matrix a(3, 70, 70, kBf16NaN, false), b(1, 70, 70, kBf16NaN, false);
    for (int32_t j = 0; j < 70; ++j) {
      b.at(0, j) = toBFloat16(1);
      for (int32_t r = 0; r < 3; ++r) a.at(r, j) = {1};  // 2^-133
    }
    a.at(1, 69) = kBf16NaN;
    F32Matrix c(1, 3, 3, kF32Canary, true);
    by.kernels.rowDot({a.data(), 70, b.data(), nullptr, c.data(), 3, 70});
    CHECK(c.at(0, 0) == 70 * 0x1p-133f);
    CHECK(std::isnan(c.at(0, 1)));
    CHECK(c.at(0, 2) == 70 * 0x1p-133f);
  }
}

}  // namespace
}  // namespace sluice::ops
