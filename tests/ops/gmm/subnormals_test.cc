// Subnormal numbers, zeros, infinities and NaN in products: every instruction set must treat them as
// vdpbf16ps and tdpbf16ps do.
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

// With both signs: zero, subnormal numbers from the smallest to the largest, the smallest normal one, others,
// infinity, NaN.
const std::vector<BFloat16>& numbers() {
  static const std::vector<BFloat16> all = [] {
    std::vector<BFloat16> values;
    for (const uint16_t bits :
         {0x0000, 0x0001, 0x0002, 0x003f, 0x0040, 0x007f, 0x0080, 0x00ff, 0x0100, 0x0d80,
          0x1f80, 0x2000, 0x3f00, 0x3f80, 0x4040, 0x6000, 0x7f00, 0x7f7f, 0x7f80, 0x7fc1})
      for (const uint16_t sign : {0x0000, 0x8000}) values.push_back({static_cast<uint16_t>(bits | sign)});
    return values;
  }();
  return all;
}

bool isSubnormal(BFloat16 x) { return (x.bits & 0x7f80) == 0 && (x.bits & 0x7f) != 0; }

double asProduct(BFloat16 x) { return isSubnormal(x) ? 0 : double{toFloat(x)}; }

// The stored form of an exact result.
float storedFloat(double x) { return std::abs(x) < 0x1p-126 ? 0.0f : static_cast<float>(x); }
float storedBf16(double x) { return toFloat(toBFloat16(storedFloat(x))); }

// The sign of a zero is not promised.
bool same(float got, float want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want && (want == 0 || std::signbit(got) == std::signbit(want));
}

// Every number times every other, at several places of a sum whose other terms are zero.
TEST_CASE("in every gmm subnormal operands and results are zero, and all else is what it is") {
  const auto count = static_cast<int32_t>(numbers().size());
  for (const Implementation& by : implementations())
    for (const bool transposed : {false, true})
      for (const int32_t rows : {1, 3, count})
        for (const auto& [k, place] : {std::pair{1, 0}, {2, 1}, {33, 32}, {70, 3}, {530, 513}})
          for (const bool packed : {false, true}) {
            INFO(by.name << (transposed ? " transposed" : "") << (packed ? " packed" : "") << ", " << rows
                         << " rows, place " << place << " of " << k);
            Bf16Matrix b(transposed ? count : k, transposed ? k : count, transposed ? k : count, {0}, false);
            for (int32_t j = 0; j < count; ++j) (transposed ? b.at(j, place) : b.at(place, j)) = numbers()[j];
            Scratch memory(by.kernels.packedWeightBytes(count, k));
            if (packed) by.kernels.packWeight({{b.data(), b.ld()}, count, k, transposed, memory.data()});
            int wrong = 0;
            for (int32_t first = 0; first < count; first += rows) {
              const int32_t some = std::min(rows, count - first);
              Bf16Matrix a(some, k, k, {0}, false), c(some, count, count, kBf16Canary, true);
              for (int32_t i = 0; i < some; ++i) a.at(i, place) = numbers()[first + i];
              Scratch scratch(by.kernels.gmmScratchBytes(count, k));
              by.kernels.gmm({{a.data(), k},
                              {b.data(), b.ld()},
                              {c.data(), count},
                              some,
                              count,
                              k,
                              transposed,
                              scratch.data(),
                              1,
                              packed ? memory.data() : nullptr});
              for (int32_t i = 0; i < some; ++i)
                for (int32_t j = 0; j < count; ++j) {
                  const double want = asProduct(numbers()[first + i]) * asProduct(numbers()[j]);
                  wrong += !same(toFloat(c.at(i, j)), storedBf16(want));
                }
            }
            CHECK(wrong == 0);
          }
}

TEST_CASE("sums that end below 2^-126, and results that alpha takes there, are zero in every gmm") {
  for (const Implementation& by : implementations())
    for (const int32_t k : {2, 40})
      for (const int32_t rows : {1, 20}) {
        INFO(by.name << ", " << rows << " rows, k " << k);
        Bf16Matrix a(rows, k, k, {0}, false), b(k, 2, 2, {0}, false), c(rows, 2, 2, kBf16Canary, true);
        for (int32_t i = 0; i < rows; ++i) {
          a.at(i, 0) = toBFloat16(0x1p-126f);
          a.at(i, 1) = toBFloat16(0x1.8p-126f);
        }
        b.at(0, 0) = toBFloat16(-1);  // -1 + 1.5 of the least normal number
        b.at(1, 0) = toBFloat16(1);
        b.at(0, 1) = b.at(1, 1) = toBFloat16(1);
        Scratch scratch(by.kernels.gmmScratchBytes(2, k));
        by.kernels.gmm({{a.data(), k}, {b.data(), 2}, {c.data(), 2}, rows, 2, k, false, scratch.data()});
        CHECK(toFloat(c.at(rows - 1, 0)) == 0);
        CHECK(toFloat(c.at(rows - 1, 1)) == 0x1.4p-125f);
        by.kernels.gmm(
            {{a.data(), k}, {b.data(), 2}, {c.data(), 2}, rows, 2, k, false, scratch.data(), 0.25f});
        CHECK(toFloat(c.at(rows - 1, 1)) == 0);
      }
}

TEST_CASE(
    "in every gmm_weight_grad subnormal operands, scales and results are zero, and all else is what it is") {
  const auto count = static_cast<int32_t>(numbers().size());
  for (const Implementation& by : implementations())
    for (const auto& [rows, place] : {std::pair{1, 0}, {2, 1}, {70, 33}, {530, 513}})
      for (const float scale : {0.0f, 1.0f, 0x1p-127f, -0x1p100f})  // 0: none
        for (const bool narrow : {false, true}) {
          INFO(by.name << (narrow ? " narrow" : "") << ", scale " << scale << ", row " << place << " of "
                       << rows);
          Bf16Matrix a(rows, count, count, {0}, false), b(rows, count, count, {0}, false);
          for (int32_t j = 0; j < count; ++j) a.at(place, j) = b.at(place, j) = numbers()[j];
          std::vector<float> scales(static_cast<size_t>(rows), 1.0f);
          scales[place] = scale;
          F32Matrix wide(count, count, count, kF32Canary, true);
          Bf16Matrix small(count, count, count, kBf16Canary, true);
          Scratch scratch(by.kernels.weightGradScratchBytes(count, count));
          GmmWeightGradArgs args{{a.data(), count},
                                 {b.data(), count},
                                 scale == 0 ? nullptr : scales.data(),
                                 {wide.data(), count},
                                 rows,
                                 count,
                                 count,
                                 scratch.data()};
          if (narrow) args.c = {small.data(), count};
          by.kernels.gmmWeightGrad(args);
          const double factor = scale == 0 ? 1 : std::abs(scale) < 0x1p-126 ? 0 : double{scale};
          int wrong = 0;
          for (int32_t i = 0; i < count; ++i)
            for (int32_t j = 0; j < count; ++j) {
              // the scaled number is rounded, and has a largest one
              const double first = storedFloat(asProduct(numbers()[i]) * factor);
              const double want = first * asProduct(numbers()[j]);
              wrong += narrow ? !same(toFloat(small.at(i, j)), storedBf16(want))
                              : !same(wide.at(i, j), storedFloat(want));
            }
          CHECK(wrong == 0);
        }
}

TEST_CASE("a gradient that is added to counts subnormal numbers that are there as zero") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    const int32_t count = 20;
    Bf16Matrix a(3, count, count, {0}, false), b(3, count, count, {0}, false);
    F32Matrix c(count, count, count, 0, true);
    for (int32_t i = 0; i < count; ++i)
      for (int32_t j = 0; j < count; ++j) c.at(i, j) = j % 2 == 0 ? 0x1p-130f : 0x1p-126f;
    Scratch scratch(by.kernels.weightGradScratchBytes(count, count));
    GmmWeightGradArgs args{{a.data(), count}, {b.data(), count}, nullptr, {c.data(), count}, 3, count, count,
                           scratch.data()};
    args.accumulate = true;
    by.kernels.gmmWeightGrad(args);
    int wrong = 0;
    for (int32_t i = 0; i < count; ++i)
      for (int32_t j = 0; j < count; ++j) wrong += c.at(i, j) != (j % 2 == 0 ? 0 : 0x1p-126f);
    CHECK(wrong == 0);
  }
}

TEST_CASE("the arithmetic of the caller keeps its subnormal numbers after a product") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Bf16Matrix a(2, 3, 3, {0x3f80}, false), b(3, 4, 4, {0x3f80}, false), c(2, 4, 4, kBf16Canary, true);
    F32Matrix grad(4, 4, 4, kF32Canary, true);
    Scratch scratch(by.kernels.gmmScratchBytes(4, 3)), other(by.kernels.weightGradScratchBytes(4, 4));
    const volatile float least = 0x1p-149f;
    by.kernels.gmm({{a.data(), 3}, {b.data(), 4}, {c.data(), 4}, 2, 4, 3, false, scratch.data()});
    CHECK(least + least == 0x1p-148f);
    by.kernels.gmmWeightGrad(
        {{b.data(), 4}, {b.data(), 4}, nullptr, {grad.data(), 4}, 3, 4, 4, other.data()});
    CHECK(least + least == 0x1p-148f);
  }
}

}  // namespace
}  // namespace sluice::ops
