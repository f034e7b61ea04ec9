// Products of rounded factors: the roundings bit by bit, as products with the identity show them, and
// products against the reference.
#include "runtime/base/rounding.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "ops/reference/reference.h"
#include "tests/ops/testing/rounding_testing.h"

namespace sluice::ops {
namespace {

constexpr Rounding kOfBlocks[] = {Rounding::kMxE4m3, Rounding::kMxE4m3Floor, Rounding::kMxE5m2,
                                  Rounding::kMxE5m2Floor};
constexpr Rounding kOfWeights[] = {Rounding::kMxE4m3,       Rounding::kMxE4m3Floor,
                                   Rounding::kMxE5m2,       Rounding::kMxE5m2Floor,
                                   Rounding::kMxE4m3Square, Rounding::kMxE4m3SquareFloor};

Bf16Matrix identity(int32_t size) {
  Bf16Matrix matrix(size, size, size + 3, kBf16NaN, false);
  for (int32_t i = 0; i < size; ++i)
    for (int32_t j = 0; j < size; ++j) matrix.at(i, j) = toBFloat16(i == j ? 1 : 0);
  return matrix;
}

GmmArgs product(const Bf16Matrix& a, const Bf16Matrix& b, int32_t rows, int32_t n, int32_t k, bool transposeB,
                Rounding roundA, Rounding roundB) {
  GmmArgs args = {};
  args.a = {a.data(), a.ld()};
  args.b = {b.data(), b.ld()};
  args.rows = rows;
  args.n = n;
  args.k = k;
  args.transposeB = transposeB;
  args.alpha = 1;
  args.roundA = roundA;
  args.roundB = roundB;
  return args;
}

Bf16Matrix multiply(const Implementation& by, GmmArgs args, bool packs = false) {
  Bf16Matrix c(args.rows, args.n, args.n + 3, kBf16Canary, true);
  Scratch scratch(by.kernels.gmmScratchBytes(args.n, args.k));
  Scratch packed(packs ? by.kernels.packedWeightBytes(args.n, args.k) : 0);
  if (packs) {
    by.kernels.packWeight({.b = args.b,
                           .n = args.n,
                           .k = args.k,
                           .transposeB = args.transposeB,
                           .packed = packed.data(),
                           .round = args.roundB,
                           .amax = args.amaxB});
    args.packedB = packed.data();
    args.b.data = nullptr;
  }
  args.c = {c.data(), c.ld()};
  args.scratch = scratch.data();
  by.kernels.gmm(args);
  CHECK(c.gapsAreUntouched());
  return c;
}

int different(const Bf16Matrix& c, int32_t rows, int32_t columns, const std::vector<double>& want) {
  int count = 0;
  for (int32_t i = 0; i < rows; ++i)
    for (int32_t j = 0; j < columns; ++j)
      count += double{toFloat(c.at(i, j))} != want[static_cast<size_t>(i * columns + j)];
  return count;
}

TEST_CASE("every bf16 number is rounded as in the reference, in blocks of like and of mixed sizes") {
  const Bf16Matrix one = identity(kMxBlock);
  for (const bool mixed : {false, true}) {
    const Bf16Matrix a = everyNumber(mixed);
    const int32_t rows = 0x7f80 * 2 / kMxBlock;
    for (const Rounding rounding : kOfBlocks) {
      const std::vector<double> want = rounded(a, rows, kMxBlock, false, rounding);
      for (const Implementation& by : implementations()) {
        INFO(by.name << " rounding " << static_cast<int>(rounding));
        const Bf16Matrix c =
            multiply(by, product(a, one, rows, kMxBlock, kMxBlock, false, rounding, Rounding::kNone));
        CHECK(different(c, rows, kMxBlock, want) == 0);
      }
    }
  }
}

TEST_CASE("every bf16 number is rounded by an amax as in the reference, also where that is of no use") {
  const Bf16Matrix one = identity(kMxBlock), a = everyNumber(true);
  constexpr int32_t kRows = 0x7f80 * 2 / kMxBlock;
  for (const Rounding rounding : {Rounding::kE4m3, Rounding::kE5m2})
    for (const float amax :
         {1.0F, 3.140625F, 448.0F, 0x1p-110F, 0x1p-111F, 0.0F, 0x1.fep127F, INFINITY, NAN}) {
      const std::vector<double> numbers = rounded(a, kRows, kMxBlock, false, rounding, amax);
      // the product is one of these, rounded to bf16 and without subnormal numbers
      std::vector<double> want;
      for (const double x : numbers) {
        const float near = toFloat(toBFloat16(static_cast<float>(x)));
        want.push_back(std::abs(near) < 0x1p-126F ? 0 : near);
      }
      for (const Implementation& by : implementations()) {
        INFO(by.name << " rounding " << static_cast<int>(rounding) << " amax " << amax);
        GmmArgs args = product(a, one, kRows, kMxBlock, kMxBlock, false, rounding, Rounding::kNone);
        args.amaxA = amax;
        CHECK(different(multiply(by, args), kRows, kMxBlock, want) == 0);
      }
    }
}

TEST_CASE(
    "products and weight gradients of factors rounded by amaxes agree with the reference, packed or not") {
  Random random(7);
  for (const int32_t rows : {0, 1, 5, 17, 130})
    for (const auto& [n, k] : {std::pair{64, 64}, {100, 350}, {1, 33}, {7, 2100}, {0, 32}, {32, 0}})
      for (const bool transposed : {false, true}) {
        const Bf16Matrix a = randomInput(random, rows, k, k + 5);
        const Bf16Matrix b = transposed ? randomInput(random, n, k, k + 1) : randomInput(random, k, n, n + 2);
        GmmArgs args = product(a, b, rows, n, k, transposed, Rounding::kE5m2, Rounding::kE4m3);
        args.alpha = 0.37F, args.amaxA = 0.75F, args.amaxB = 1.5F;  // some of a are cut
        std::vector<double> want(static_cast<size_t>(rows) * static_cast<size_t>(n));
        gmmReference(args, want.data());
        const std::vector<float> scale = randomFloats(random, rows);
        const Bf16Matrix dy = randomInput(random, rows, n, n + 5);
        GmmWeightGradArgs sum = sumOf(a, dy, rows, k, n, Rounding::kE4m3, Rounding::kE5m2);
        sum.amaxA = 0.75F, sum.amaxB = 1.5F, sum.scale = transposed ? scale.data() : nullptr;
        std::vector<double> grads(static_cast<size_t>(k) * static_cast<size_t>(n));
        gmmWeightGradReference(sum, grads.data());
        for (const Implementation& by : implementations()) {
          INFO(by.name << " rows " << rows << " n " << n << " k " << k << (transposed ? " transposed" : ""));
          const Bf16Matrix c = multiply(by, args);
          int wrong = 0;
          for (int32_t i = 0; i < rows; ++i)
            for (int32_t j = 0; j < n; ++j) {
              const double exact = want[static_cast<size_t>(i * n + j)];
              const double error = (k + 4) * kF32Rounding * k;
              wrong += !agrees(toFloat(c.at(i, j)), exact, error + kBf16Rounding * (std::abs(exact) + error));
            }
          CHECK(wrong == 0);
          if (rows > 0 && n > 0) CHECK(c.sameBits(multiply(by, args, true)));
          const F32Matrix grad = gradient(by, sum);
          for (int32_t i = 0; i < k; ++i)
            for (int32_t j = 0; j < n; ++j)
              wrong += !agrees(grad.at(i, j), grads[static_cast<size_t>(i * n + j)],
                               (rows + 4) * kF32Rounding * rows * 2);
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("NaN and infinities make NaN of what they are multiplied with, and change nothing else") {
  Random random(8);
  for (const Implementation& by : implementations())
    for (const float special : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Bf16Matrix a = randomInput(random, 40, 96, 96);
      const Bf16Matrix b = randomInput(random, 96, 70, 70);
      GmmArgs args = product(a, b, 40, 70, 96, false, Rounding::kE4m3, Rounding::kE4m3);
      args.amaxA = args.amaxB = 1;
      const Bf16Matrix before = multiply(by, args);
      a.at(17, 40) = toBFloat16(special);
      const Bf16Matrix c = multiply(by, args);
      int wrong = 0;
      for (int32_t i = 0; i < 40; ++i)
        for (int32_t j = 0; j < 70; ++j)
          wrong += i == 17 ? !std::isnan(toFloat(c.at(i, j))) : c.at(i, j).bits != before.at(i, j).bits;
      INFO(by.name);
      CHECK(wrong == 0);
    }
}

TEST_CASE("a weight is rounded as in the reference, as it lies, packed or not, for few and many columns") {
  Random random(1);
  for (const auto& [n, k] : {std::pair{32, 32}, {64, 96}, {130, 320}, {7, 50}, {96, 256}, {33, 1}})
    for (const bool transposed : {false, true})
      for (const Rounding rounding : kOfWeights) {
        const Bf16Matrix b = transposed ? wideInput(random, n, k) : wideInput(random, k, n);
        const Bf16Matrix one = identity(k);
        // [k, n], like the product of the identity and b
        std::vector<double> want = rounded(b, transposed ? n : k, transposed ? k : n, !transposed, rounding);
        if (transposed) {
          std::vector<double> turned(want.size());
          for (int32_t j = 0; j < n; ++j)
            for (int32_t i = 0; i < k; ++i)
              turned[static_cast<size_t>(i * n + j)] = want[static_cast<size_t>(j * k + i)];
          want = turned;
        }
        for (const Implementation& by : implementations())
          for (const bool packs : {false, true})
            for (const int32_t rows : {std::min(k, 3), k}) {
              INFO(by.name << " rounding " << static_cast<int>(rounding) << " n " << n << " k " << k
                           << " rows " << rows << (transposed ? " transposed" : "")
                           << (packs ? " packed" : ""));
              const Bf16Matrix c =
                  multiply(by, product(one, b, rows, n, k, transposed, Rounding::kNone, rounding), packs);
              CHECK(different(c, rows, n, want) == 0);
            }
      }
}

TEST_CASE("products of rounded factors agree with the reference within the bound of bf16") {
  Random random(2);
  for (const int32_t rows : {0, 1, 5, 17, 130})
    for (const auto& [n, k] : {std::pair{64, 64}, {100, 352}, {1, 33}, {7, 2100}, {0, 32}, {32, 0}})
      for (const bool transposed : {false, true})
        for (const Rounding weight : {Rounding::kMxE4m3, Rounding::kMxE4m3SquareFloor, Rounding::kNone}) {
          const Bf16Matrix a = randomInput(random, rows, k, k + 5);
          const Bf16Matrix b =
              transposed ? randomInput(random, n, k, k + 1) : randomInput(random, k, n, n + 2);
          GmmArgs args = product(a, b, rows, n, k, transposed, Rounding::kMxE5m2, weight);
          args.alpha = 0.37f;
          std::vector<double> want(static_cast<size_t>(rows) * static_cast<size_t>(n));
          gmmReference(args, want.data());
          for (const Implementation& by : implementations()) {
            INFO(by.name << " rows " << rows << " n " << n << " k " << k
                         << (transposed ? " transposed" : ""));
            const Bf16Matrix c = multiply(by, args);
            int wrong = 0;
            for (int32_t i = 0; i < rows; ++i)
              for (int32_t j = 0; j < n; ++j) {
                const double exact = want[static_cast<size_t>(i * n + j)];
                const double sum = (k + 4) * kF32Rounding * k;
                wrong += !agrees(toFloat(c.at(i, j)), exact, sum + kBf16Rounding * (std::abs(exact) + sum));
              }
            CHECK(wrong == 0);
            if (rows > 0 && n > 0) CHECK(c.sameBits(multiply(by, args, true)));
          }
        }
}

TEST_CASE("a block with a NaN or an infinity makes NaN of its row or column, and of no other") {
  Random random(3);
  for (const Implementation& by : implementations())
    for (const float special : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Bf16Matrix a = randomInput(random, 40, 96, 96), b = randomInput(random, 96, 70, 70);
      a.at(17, 40) = toBFloat16(special);
      b.at(3, 65) = toBFloat16(special);
      const Bf16Matrix c =
          multiply(by, product(a, b, 40, 70, 96, false, Rounding::kMxE4m3, Rounding::kMxE4m3));
      int wrong = 0;
      for (int32_t i = 0; i < 40; ++i)
        for (int32_t j = 0; j < 70; ++j) wrong += std::isnan(toFloat(c.at(i, j))) != (i == 17 || j == 65);
      INFO(by.name);
      CHECK(wrong == 0);
    }
}

TEST_CASE(
    "weight gradients of rounded factors agree with the reference, with and without the scale of rows") {
  Random random(4);
  for (const int32_t rows : {0, 1, 31, 32, 33, 100, 700})
    for (const auto& [m, n] : {std::pair{16, 64}, {70, 33}, {1, 7}, {400, 40}})
      for (const bool scaled : {false, true}) {
        const Bf16Matrix a = wideInput(random, rows, m, -6), b = wideInput(random, rows, n, -6);
        const std::vector<float> scale = randomFloats(random, rows);
        GmmWeightGradArgs args = sumOf(a, b, rows, m, n, Rounding::kMxE4m3, Rounding::kMxE5m2Floor);
        args.scale = scaled ? scale.data() : nullptr;
        std::vector<double> want(static_cast<size_t>(m) * static_cast<size_t>(n));
        gmmWeightGradReference(args, want.data());
        for (const Implementation& by : implementations()) {
          INFO(by.name << " rows " << rows << " m " << m << " n " << n << (scaled ? " scaled" : ""));
          const F32Matrix c = gradient(by, args);
          int wrong = 0;
          for (int32_t i = 0; i < m; ++i)
            for (int32_t j = 0; j < n; ++j)
              wrong += !agrees(c.at(i, j), want[static_cast<size_t>(i * n + j)],
                               (rows + 4) * kF32Rounding * rows * 16);
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("factors of weight gradients are rounded bit by bit as in the reference") {
  Random random(5);
  constexpr int32_t kRows = 75, kColumns = 90;
  const Bf16Matrix one = identity(kRows), x = wideInput(random, kRows, kColumns);
  for (const Rounding rounding : kOfBlocks) {
    const std::vector<double> want = rounded(x, kRows, kColumns, true, rounding);
    for (const Implementation& by : implementations()) {
      INFO(by.name << " rounding " << static_cast<int>(rounding));
      const F32Matrix left = gradient(by, sumOf(x, one, kRows, kColumns, kRows, rounding, Rounding::kNone));
      const F32Matrix right = gradient(by, sumOf(one, x, kRows, kRows, kColumns, Rounding::kNone, rounding));
      int wrong = 0;
      for (int32_t i = 0; i < kRows; ++i)
        for (int32_t j = 0; j < kColumns; ++j) {
          const double number = want[static_cast<size_t>(i * kColumns + j)];
          wrong += double{left.at(j, i)} != number || double{right.at(i, j)} != number;
        }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
}  // namespace sluice::ops
