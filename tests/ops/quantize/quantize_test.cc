// Every implementation of quantize against the reference, bit for bit.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

constexpr int8_t kCodeCanary = 77;

struct Result {
  Matrix<int8_t> codes;
  std::vector<float> scale;
};

// `columnScale` may be null.
Result run(const Bf16Matrix& a, int32_t rows, int32_t n, void (*quantize)(const QuantizeArgs&),
           const float* columnScale = nullptr) {
  Result result{{rows, n, n + 3, kCodeCanary, true}, std::vector<float>(static_cast<size_t>(rows))};
  quantize(
      {a.data(), a.ld(), result.codes.data(), result.codes.ld(), result.scale.data(), rows, n, columnScale});
  return result;
}

bool areEqual(const Result& one, const Result& other) {
  const auto bits = [](float scale) { return std::bit_cast<uint32_t>(scale); };  // NaN equals itself
  return one.codes.sameBits(other.codes) && std::ranges::equal(one.scale, other.scale, {}, bits, bits);
}

void checkAll(const Bf16Matrix& a, int32_t rows, int32_t n, const float* columnScale = nullptr) {
  const Result want = run(a, rows, n, quantizeReference, columnScale);
  for (const Implementation& by : implementations()) {
    INFO(by.name << " rows " << rows << " n " << n << (columnScale == nullptr ? "" : " of scaled columns"));
    const Result got = run(a, rows, n, by.kernels.quantize, columnScale);
    CHECK(areEqual(got, want));
    CHECK(got.codes.gapsAreUntouched());
  }
}

TEST_CASE("codes and scales have the bits of the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (int32_t rows : {0, 1, 2, 17})
    for (int32_t n : {0, 1, 2, 7, 15, 16, 31, 64, 100, 257, 2048})
      checkAll(randomInput(random, rows, n, n + 5), rows, n);
}

std::vector<float> randomScales(Random& random, int32_t n) {
  std::vector<float> scales(static_cast<size_t>(n));
  for (float& scale : scales) scale = uniform(random, -0.02F, 0.03F);
  return scales;
}

TEST_CASE("scaled columns have the bits of the reference at ragged, empty and odd sizes") {
  Random random(4);
  for (int32_t rows : {0, 1, 2, 17})
    for (int32_t n : {0, 1, 2, 7, 15, 16, 31, 64, 100, 257, 2048}) {
      const std::vector<float> scales = randomScales(random, n);
      checkAll(randomInput(random, rows, n, n + 5), rows, n, scales.data());
    }
}

// The quotients of scaled columns are no bf16 numbers, so each rounding shows.
TEST_CASE("columns of every magnitude are multiplied by scales of every magnitude as in the reference") {
  constexpr int32_t kRows = 256, kColumns = 300;
  Random random(5);
  Bf16Matrix a(kRows, kColumns, kColumns + 1, kBf16NaN, false);
  std::vector<float> scales(kColumns);
  for (int32_t row = 0; row < kRows; ++row)
    for (int32_t j = 0; j < kColumns; ++j)
      a.at(row, j) = {static_cast<uint16_t>(random() % 0x8000 / 128 * 128 * (row % 2) | (random() & 0x807f) |
                                            (row % 2 == 0 ? row % 255 << 7 : 0))};
  for (float& scale : scales)
    scale = std::bit_cast<float>(static_cast<uint32_t>(random() % 0x7f000000 | (random() & 1) << 31));
  checkAll(a, kRows, kColumns, scales.data());
}

TEST_CASE("codes of scaled columns are those of the products, to half a step") {
  Random random(6);
  const Bf16Matrix a = randomInput(random, 9, 333, 333);
  const std::vector<float> scales = randomScales(random, 333);
  for (const Implementation& by : implementations()) {
    const Result got = run(a, 9, 333, by.kernels.quantize, scales.data());
    for (int32_t row = 0; row < 9; ++row) {
      const double step = got.scale[static_cast<size_t>(row)];
      for (int32_t j = 0; j < 333; ++j) {
        const double x = double{toFloat(a.at(row, j))} * double{scales[static_cast<size_t>(j)]};
        CHECK(std::abs(x - got.codes.at(row, j) * step) <= step / 2 * (1 + 1e-5));
      }
    }
  }
}

TEST_CASE("a product with a column's scale that is infinite or NaN gives the row a NaN scale") {
  Random random(7);
  Bf16Matrix a = randomInput(random, 5, 40, 40);
  std::vector<float> scales(40, 1);
  scales[3] = 0x1p127F;
  for (int32_t row = 0; row < 5; ++row) a.at(row, 3) = toBFloat16(row == 2 ? 2.0F : 0.5F);
  for (const Implementation& by : implementations()) {
    const Result got = run(a, 5, 40, by.kernels.quantize, scales.data());
    for (int32_t row = 0; row < 5; ++row)
      CHECK(std::isnan(got.scale[static_cast<size_t>(row)]) == (row == 2));
    for (int32_t j = 0; j < 40; ++j) CHECK(got.codes.at(2, j) == 0);
  }
  checkAll(a, 5, 40, scales.data());
  scales[7] = std::numeric_limits<float>::quiet_NaN();
  for (const Implementation& by : implementations())
    for (const float scale : run(a, 5, 40, by.kernels.quantize, scales.data()).scale)
      CHECK(std::isnan(scale));
}

TEST_CASE("every bf16 value is quantised as in the reference, beside every largest magnitude") {
  constexpr int32_t kValues = 1 << 8;  // all mantissas and signs of one exponent
  for (int32_t exponent = 0; exponent < 256; ++exponent) {
    Bf16Matrix a(kValues, kValues + 1, kValues + 1, kBf16NaN, false);
    for (int32_t row = 0; row < kValues; ++row) {
      // the largest magnitude: that of the row's number in the same or a larger exponent
      const int32_t above = std::min(exponent + row % 12, 254);
      a.at(row, 0) = {static_cast<uint16_t>(above << 7 | row / 2)};
      for (int32_t j = 0; j < kValues; ++j)
        a.at(row, j + 1) = {static_cast<uint16_t>((j & 1) << 15 | exponent << 7 | j >> 1)};
    }
    checkAll(a, kValues, kValues + 1);
  }
}

TEST_CASE("a row with a NaN or an infinity has a NaN scale, and no other row is affected") {
  Random random(2);
  Bf16Matrix a = randomInput(random, 5, 40, 40);
  a.at(1, 7) = kBf16NaN;
  a.at(3, 39) = {0xff80};
  for (const Implementation& by : implementations()) {
    const Result got = run(a, 5, 40, by.kernels.quantize);
    for (int32_t row = 0; row < 5; ++row)
      CHECK(std::isnan(got.scale[static_cast<size_t>(row)]) == (row % 2 == 1));
    for (int32_t j = 0; j < 40; ++j) CHECK(got.codes.at(1, j) == 0);
  }
  checkAll(a, 5, 40);
}

TEST_CASE("the error of a code is at most half a step, and the largest magnitude is 127") {
  Random random(3);
  const Bf16Matrix a = randomInput(random, 9, 333, 333);
  for (const Implementation& by : implementations()) {
    const Result got = run(a, 9, 333, by.kernels.quantize);
    for (int32_t row = 0; row < 9; ++row) {
      const double step = got.scale[static_cast<size_t>(row)];
      int most = 0;
      for (int32_t j = 0; j < 333; ++j) {
        const int code = got.codes.at(row, j);
        most = std::max(most, std::abs(code));
        CHECK(std::abs(toFloat(a.at(row, j)) - code * step) <= step / 2 * (1 + 1e-5));
      }
      CHECK(most == 127);
    }
  }
}

}  // namespace
}  // namespace sluice::ops
