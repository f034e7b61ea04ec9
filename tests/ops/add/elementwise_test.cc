// Every implementation of add and of scale against their references.
#include <bit>
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

// Both ops on one size: `call` runs the kernel, `reference` its meaning, into a matrix of rows x n.
template <class Call, class Reference>
void checkOp(const Implementation& by, const char* op, int32_t rows, int32_t n, const Call& call,
             const Reference& reference) {
  INFO(by.name << " " << op << " rows " << rows << " n " << n);
  Bf16Matrix c(rows, n, n + 3, kBf16Canary, true);
  call(c);
  std::vector<double> want(static_cast<size_t>(rows) * n);
  reference(want.data());
  int wrong = 0;
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t j = 0; j < n; ++j) {
      // one operation in fp32, one rounding of it
      const auto exact = static_cast<float>(want[static_cast<size_t>(r) * n + j]);
      wrong += c.at(r, j) != toBFloat16(exact);
    }
  CHECK(wrong == 0);
  CHECK(c.gapsAreUntouched());
}

TEST_CASE("every add and scale is its reference rounded, at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 2, 17})
      for (int32_t n : {0, 1, 7, 8, 15, 16, 31, 33, 64, 100, 257})
        for (int64_t gap : {0, 5}) {
          const Bf16Matrix a = randomInput(random, rows, n, n + gap, gap);
          const Bf16Matrix b = randomInput(random, rows, n, n + gap, gap);
          AddArgs add = {a.data(), a.ld(), b.data(), b.ld(), nullptr, 0, rows, n};
          const auto runAdd = [&](Bf16Matrix& c) {
            add.c = c.data();
            add.ldc = c.ld();
            by.kernels.add(add);
          };
          checkOp(by, "add", rows, n, runAdd, [&](double* want) { addReference(add, want); });
          ScaleArgs scale = {a.data(), a.ld(), nullptr, 0, rows, n, -0.37f};
          const auto runScale = [&](Bf16Matrix& c) {
            scale.c = c.data();
            scale.ldc = c.ld();
            by.kernels.scale(scale);
          };
          const std::vector<float> weights = randomFloats(random, rows);
          for (const float* rowWeight : {static_cast<const float*>(nullptr), weights.data()}) {
            scale.rowWeight = rowWeight;
            checkOp(by, "scale", rows, n, runScale, [&](double* want) { scaleReference(scale, want); });
          }
        }
}

TEST_CASE("scale by one passes all bits") {
  constexpr int32_t kCount = 1 << 16;
  Bf16Matrix a(1, kCount, kCount, kBf16NaN, false);
  for (int32_t j = 0; j < kCount; ++j) a.at(0, j) = {static_cast<uint16_t>(j)};
  for (const Implementation& by : implementations()) {
    Bf16Matrix c(1, kCount, kCount + 3, kBf16Canary, true), own = a;
    by.kernels.scale({a.data(), a.ld(), c.data(), c.ld(), 1, kCount, 1.0f});
    by.kernels.scale({own.data(), own.ld(), own.data(), own.ld(), 1, kCount, 1.0f});
    int wrong = 0;
    for (int32_t j = 0; j < kCount; ++j) wrong += c.at(0, j) != a.at(0, j);
    INFO(by.name);
    CHECK(wrong == 0);
    CHECK(own.sameBits(a));
    CHECK(c.gapsAreUntouched());
  }
}

TEST_CASE("every scale of float32 is its reference rounded, and scale by one passes all bits") {
  Random random(3);
  for (const Implementation& by : implementations())
    for (int32_t rows : {0, 1, 5})
      for (int32_t n : {0, 1, 7, 8, 15, 16, 33, 100}) {
        INFO(by.name << " rows " << rows << " n " << n);
        std::vector<float> a = randomFloats(random, rows * (n + 5));
        F32Matrix c(rows, n, n + 3, kF32Canary, true);
        ScaleF32Args args = {a.data(), n + 5, c.data(), c.ld(), rows, n, -0.37f};
        by.kernels.scaleF32(args);
        std::vector<double> want(static_cast<size_t>(rows) * n);
        scaleReference(args, want.data());
        int wrong = 0;
        for (int32_t r = 0; r < rows; ++r)
          for (int32_t j = 0; j < n; ++j)
            wrong += c.at(r, j) != static_cast<float>(want[static_cast<size_t>(r) * n + j]);
        CHECK(wrong == 0);
        CHECK(c.gapsAreUntouched());
        const std::vector<float> weights = randomFloats(random, rows);
        args.rowWeight = weights.data();
        by.kernels.scaleF32(args);
        scaleReference(args, want.data());
        for (int32_t r = 0; r < rows; ++r)
          for (int32_t j = 0; j < n; ++j)
            wrong += c.at(r, j) != static_cast<float>(want[static_cast<size_t>(r) * n + j]);
        CHECK(wrong == 0);
        args.rowWeight = nullptr;
        for (float& value : a) value = std::bit_cast<float>(static_cast<uint32_t>(random()) | 0x7f800000u);
        args.alpha = 1;
        by.kernels.scaleF32(args);
        for (int32_t r = 0; r < rows; ++r)
          wrong += std::memcmp(&c.at(r, 0), a.data() + r * (n + 5), static_cast<size_t>(n) * 4) != 0;
        CHECK(wrong == 0);
      }
}

TEST_CASE("add and scale may write where they read") {
  Random random(2);
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    const Bf16Matrix a = randomInput(random, 5, 37, 40), b = randomInput(random, 5, 37, 40);
    Bf16Matrix sum = a, product = a, other = b, scaled = a;
    by.kernels.add({a.data(), 40, b.data(), 40, sum.data(), 40, 5, 37});
    by.kernels.add({a.data(), 40, other.data(), 40, other.data(), 40, 5, 37});
    CHECK(sum.sameBits(other));
    CHECK_FALSE(sum.sameBits(a));
    by.kernels.scale({a.data(), 40, product.data(), 40, 5, 37, 1.5f});
    by.kernels.scale({scaled.data(), 40, scaled.data(), 40, 5, 37, 1.5f});
    CHECK(product.sameBits(scaled));
    CHECK_FALSE(product.sameBits(a));
  }
}

TEST_CASE("add and scale pass NaN and infinities to the elements they belong to") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Bf16Matrix a(1, 20, 20, kBf16NaN, false), b = a, c(1, 20, 20, kBf16Canary, true);
    for (int32_t j = 0; j < 20; ++j) {
      a.at(0, j) = toBFloat16(j == 3 ? infinity : j == 4 ? NAN : 1.0f);
      b.at(0, j) = toBFloat16(j == 3 || j == 17 ? -infinity : 2.0f);
    }
    by.kernels.add({a.data(), 20, b.data(), 20, c.data(), 20, 1, 20});
    CHECK(std::isnan(toFloat(c.at(0, 3))));
    CHECK(std::isnan(toFloat(c.at(0, 4))));
    CHECK(toFloat(c.at(0, 17)) == -infinity);
    CHECK(toFloat(c.at(0, 19)) == 3);
    by.kernels.scale({a.data(), 20, c.data(), 20, 1, 20, -2});
    CHECK(toFloat(c.at(0, 3)) == -infinity);
    CHECK(std::isnan(toFloat(c.at(0, 4))));
    CHECK(toFloat(c.at(0, 5)) == -2);
  }
}

}  // namespace
}  // namespace sluice::ops
