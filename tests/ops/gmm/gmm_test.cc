// Every implementation of gmm against the reference.
#include <bit>
#include <catch2/catch.hpp>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

struct Case {
  ProductShape shape;
  bool transposed;
  Bf16Matrix a, b;
  float alpha = 1;
  std::vector<BFloat16> bias;  // empty for none

  Case(Random& random, ProductShape s, bool transposeB, int64_t gap = 5, int64_t offset = 0)
      : shape(s),
        transposed(transposeB),
        a(randomInput(random, s.rows, s.k, s.k + gap, offset)),
        b(transposeB ? randomInput(random, s.n, s.k, s.k + gap, offset)
                     : randomInput(random, s.k, s.n, s.n + gap, offset)) {}

  Bf16Matrix output(int64_t offset = 0) const {
    return Bf16Matrix(shape.rows, shape.n, shape.n + 3, kBf16Canary, true, offset);
  }

  GmmArgs args(Bf16Matrix& c, void* scratch) const {
    return {{a.data(), a.ld()},
            {b.data(), b.ld()},
            {c.data(), c.ld()},
            shape.rows,
            shape.n,
            shape.k,
            transposed,
            scratch,
            alpha,
            nullptr,
            bias.empty() ? nullptr : bias.data()};
  }

  void run(const Implementation& by, Bf16Matrix& c, int fill = 0xff) const {
    Scratch scratch(by.kernels.gmmScratchBytes(shape.n, shape.k), fill);
    by.kernels.gmm(args(c, scratch.data()));
  }

  std::vector<double> reference() const {
    Bf16Matrix c = output();
    std::vector<double> result(static_cast<size_t>(shape.rows) * shape.n);
    gmmReference(args(c, nullptr), result.data());
    return result;
  }

  // The sums of |a| * |b|, which bound the effect of rounding.
  std::vector<double> sizes() const {
    Case positive = *this;
    positive.alpha = std::abs(alpha);
    positive.a = magnitudes(a, shape.rows, shape.k);
    positive.b = transposed ? magnitudes(b, shape.n, shape.k) : magnitudes(b, shape.k, shape.n);
    for (BFloat16& value : positive.bias) value.bits &= 0x7fff;
    return positive.reference();
  }
};

// What the reference gives, which takes longer than most implementations do.
struct Expected {
  std::vector<double> want, size;
  explicit Expected(const Case& test) : want(test.reference()), size(test.sizes()) {}
};

// The number of elements of `c` that differ from the reference by more than rounding explains.
int wrongElements(const Case& test, const Expected& expected, const Bf16Matrix& c) {
  int wrong = 0;
  for (int32_t r = 0; r < test.shape.rows; ++r)
    for (int32_t j = 0; j < test.shape.n; ++j) {
      const size_t at = static_cast<size_t>(r) * test.shape.n + j;
      const double want = expected.want[at], sum = (test.shape.k + 4) * kF32Rounding * expected.size[at];
      if (!agrees(toFloat(c.at(r, j)), want, sum + kBf16Rounding * (std::abs(want) + sum))) ++wrong;
    }
  return wrong;
}

void checkAll(const Case& test) {
  const Expected expected(test);
  for (const Implementation& by : implementations()) {
    INFO(by.name << " rows " << test.shape.rows << " n " << test.shape.n << " k " << test.shape.k
                 << (test.transposed ? " transposed" : ""));
    Bf16Matrix c = test.output();
    test.run(by, c);
    CHECK(wrongElements(test, expected, c) == 0);
    CHECK(c.gapsAreUntouched());
  }
}

TEST_CASE("every gmm agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (int32_t rows : {0, 1, 2, 15, 16, 17, 33, 130})
    for (auto [n, k] : {std::pair{1, 1},
                        {1, 257},
                        {2, 7},
                        {7, 2},
                        {16, 33},
                        {31, 64},
                        {33, 31},
                        {64, 16},
                        {100, 100},
                        {257, 1},
                        {65, 257},
                        {0, 5},
                        {5, 0}})
      for (bool transposed : {false, true}) checkAll(Case(random, {rows, n, k}, transposed));
}

TEST_CASE("every gmm agrees with the reference where rows, columns and sum take several blocks") {
  Random random(2);
  for (bool transposed : {false, true}) {
    checkAll(Case(random, {200, 40, 64}, transposed));
    checkAll(Case(random, {385, 3, 7}, transposed));
    checkAll(Case(random, {390, 130, 96}, transposed));
    checkAll(Case(random, {35, 130, 1061}, transposed));
    checkAll(Case(random, {70, 100, 1062}, transposed));
    checkAll(Case(random, {70, 130, 1062}, transposed));
    checkAll(Case(random, {64, 197, 66}, transposed));
    checkAll(Case(random, {7, 70, 2049}, transposed));
    // more than the longest block of the sum, that of AMX
    checkAll(Case(random, {20, 70, 2081}, transposed));
    // more columns than few rows meet at once
    checkAll(Case(random, {1, 8300, 9}, transposed));
    checkAll(Case(random, {5, 1700, 11}, transposed));
    checkAll(Case(random, {7, 900, 13}, transposed));
    checkAll(Case(random, {16, 800, 31}, transposed));
  }
}

TEST_CASE("a gmm without gaps between its rows reads nothing else") {
  Random random(3);
  for (bool transposed : {false, true})
    for (ProductShape shape : {ProductShape{1, 130, 35}, ProductShape{2, 64, 8}, ProductShape{3, 5, 7},
                               ProductShape{5, 70, 33}, ProductShape{16, 801, 15}, ProductShape{19, 67, 41}})
      checkAll(Case(random, shape, transposed, 0, 1));
}

TEST_CASE("gmm passes NaN and infinities to the elements they belong to and no others") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (bool transposed : {false, true})
    for (int32_t k : {9, 64, 301}) {
      Random random(4);
      Case test(random, {21, 37, k}, transposed);
      test.a.at(20, k - 1) = toBFloat16(infinity);
      test.a.at(3, 0) = kBf16NaN;
      test.a.at(17, k / 2) = toBFloat16(-infinity);
      (transposed ? test.b.at(36, k - 1) : test.b.at(k - 1, 36)) = toBFloat16(infinity);
      (transposed ? test.b.at(5, k / 2) : test.b.at(k / 2, 5)) = toBFloat16(0);
      checkAll(test);
    }
}

TEST_CASE("every gmm multiplies its sum by alpha before the one rounding") {
  Random random(7);
  for (ProductShape shape : {ProductShape{1, 1, 1}, ProductShape{17, 31, 33}, ProductShape{33, 130, 1061},
                             ProductShape{5, 7, 0}}) {
    Case test(random, shape, shape.rows == 17);
    for (const Implementation& by : implementations()) {
      Bf16Matrix whole = test.output(), half = test.output();
      test.alpha = 1;
      test.run(by, whole);
      test.alpha = -0.5f;  // a power of two commutes with rounding
      test.run(by, half);
      int wrong = 0;
      for (int32_t r = 0; r < shape.rows; ++r)
        for (int32_t j = 0; j < shape.n; ++j) {
          const float want = -0.5f * toFloat(whole.at(r, j));
          wrong += std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(toFloat(half.at(r, j)));
        }
      INFO(by.name << " rows " << shape.rows);
      CHECK(wrong == 0);
    }
    test.alpha = 0.37f;
    checkAll(test);
  }
}

std::vector<BFloat16> randomBias(Random& random, int32_t n) {
  std::vector<BFloat16> bias;
  for (int32_t j = 0; j < n; ++j) bias.push_back(toBFloat16(uniform(random, -3, 3)));
  return bias;
}

TEST_CASE(
    "every gmm adds its bias to alpha times the sum, for few and many rows and whole and ragged tiles") {
  Random random(10);
  for (int32_t rows : {0, 1, 3, 4, 7, 16, 17, 50, 130})
    for (auto [n, k] : {std::pair{1, 1}, {7, 2}, {33, 31}, {64, 64}, {100, 300}, {130, 1061}, {5, 0}, {0, 5}})
      for (bool transposed : {false, true})
        for (float alpha : {1.0f, -0.37f}) {
          Case test(random, {rows, n, k}, transposed);
          test.alpha = alpha;
          test.bias = randomBias(random, n);
          checkAll(test);
        }
}

TEST_CASE("a bias is added in fp32 before the one rounding, and a bias of zeros changes no sum") {
  for (const Implementation& by : implementations())
    for (int32_t rows : {1, 40}) {
      INFO(by.name << " rows " << rows);
      Random random(11);
      Case test(random, {rows, 37, 1}, true);
      for (int32_t r = 0; r < rows; ++r) test.a.at(r, 0) = toBFloat16(1.0f + 0x1p-7f);
      for (int32_t j = 0; j < 37; ++j) test.b.at(j, 0) = toBFloat16(1.0f + 0x1p-7f);
      test.bias.assign(37, toBFloat16(0x1p-8f));  // a tie, unless the 2^-14 of the product is left
      Bf16Matrix c = test.output(), plain = test.output(), zero = test.output();
      test.run(by, c);
      const float exact = (1.0f + 0x1p-7f) * (1.0f + 0x1p-7f) + 0x1p-8f;
      int wrong = 0;
      for (int32_t r = 0; r < rows; ++r)
        for (int32_t j = 0; j < 37; ++j) wrong += c.at(r, j) != toBFloat16(exact);
      CHECK(wrong == 0);
      test.bias.assign(37, BFloat16{});
      test.run(by, zero);
      test.bias.clear();
      test.run(by, plain);
      CHECK(zero.sameBits(plain));
    }
}

TEST_CASE("gmm gives the same bits whatever the alignment and the old content of the scratch") {
  for (const Implementation& by : implementations())
    for (bool transposed : {false, true}) {
      INFO(by.name);
      Random first(5), second(5);
      const Case one(first, {37, 83, 517}, transposed, 5, 0);
      const Case other(second, {37, 83, 517}, transposed, 14, 3);
      Bf16Matrix c = one.output(), again = one.output(), elsewhere = other.output(1);
      one.run(by, c, 0xff);
      one.run(by, again, 0);
      other.run(by, elsewhere, 0x7f);
      CHECK(c.sameBits(again));
      CHECK(c.sameBits(elsewhere));
    }
}

TEST_CASE("gmm gives an element the same bits in whatever tile and slot it is computed") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Random random(6);
    const Case whole(random, {50, 90, 300}, false);
    Bf16Matrix c = whole.output(), pieces = whole.output();
    whole.run(by, c);
    for (int32_t row : {0, 23})
      for (int32_t col : {0, 41}) {
        const int32_t rows = row == 0 ? 23 : 27, cols = col == 0 ? 41 : 49;
        Scratch scratch(by.kernels.gmmScratchBytes(cols, 300));
        GmmArgs args = whole.args(pieces, scratch.data());
        args.a = args.a.from(row, 0);
        args.b = args.b.from(0, col);
        args.c = args.c.from(row, col);
        args.rows = rows;
        args.n = cols;
        by.kernels.gmm(args);
      }
    CHECK(c.sameBits(pieces));
  }
}

TEST_CASE("gmm of few rows keeps the sign of a zero whatever is left of a block of the sum") {
  for (const Implementation& by : implementations())
    for (bool transposed : {false, true})
      for (int32_t k : {2, 32, 34, 66}) {
        INFO(by.name << " k " << k << (transposed ? " transposed" : ""));
        Random random(9);
        Case whole(random, {17, 19, k}, transposed);  // sums that underflow: -0 where the unit flushes them
        for (int32_t i = 0; i < k; ++i) {
          for (int32_t r = 0; r < 17; ++r) whole.a.at(r, i) = toBFloat16(1e-21f);
          for (int32_t j = 0; j < 19; ++j)
            (transposed ? whole.b.at(j, i) : whole.b.at(i, j)) = toBFloat16(-1e-21f);
        }
        Bf16Matrix c = whole.output(), first = whole.output();
        whole.run(by, c);
        GmmArgs args = whole.args(first, nullptr);
        Scratch scratch(by.kernels.gmmScratchBytes(19, k));
        args.scratch = scratch.data();
        args.rows = 16;
        by.kernels.gmm(args);
        args.rows = 1;
        args.a = args.a.from(16, 0);
        args.c = args.c.from(16, 0);
        by.kernels.gmm(args);
        CHECK(c.sameBits(first));
      }
}

TEST_CASE("every gmm of gathered rows has the bits of the same rows one after the other") {
  Random random(12);
  for (const Implementation& by : implementations())
    for (bool transposed : {false, true})
      for (int32_t rows : {0, 1, 3, 6, 16, 17, 130})
        for (auto [n, k] : {std::pair{1, 1}, {33, 31}, {70, 577}, {130, 1061}, {70, 130}}) {
          INFO(by.name << " rows " << rows << " n " << n << " k " << k << (transposed ? " transposed" : ""));
          Case test(random, {rows, n, k}, transposed);
          const GatheredRows gathered(random, rows, k);
          test.a = gathered.copied();
          Bf16Matrix c = test.output(), again = test.output();
          test.run(by, c);
          Scratch scratch(by.kernels.gmmScratchBytes(n, k));
          GmmArgs args = test.args(again, scratch.data());
          args.a = gathered.matrix();
          args.rowsA = gathered.index();
          by.kernels.gmm(args);
          CHECK(again.sameBits(c));
          CHECK(again.gapsAreUntouched());
        }
}

TEST_CASE("gmm gives a row the same bits however many rows are with it") {
  for (const Implementation& by : implementations())
    for (bool transposed : {false, true})
      // rows of b that begin 4 KiB apart share sets of a cache, so that others are read in place
      for (auto [k, gap] : {std::pair{7, 5}, {300, 5}, {1058, 5}, {45, 2048 - 91}}) {
        Random random(8);
        const Case whole(random, {67, 91, k}, transposed, gap);
        Bf16Matrix c = whole.output();
        whole.run(by, c);
        Scratch scratch(by.kernels.gmmScratchBytes(91, k));
        for (int32_t rows = 1; rows < 67; ++rows) {
          // few rows one by one, then those below, at and above the edges of tiles
          if (rows > 18 && (rows + 1) % 8 > 2) continue;
          INFO(by.name << " rows " << rows << " k " << k << (transposed ? " transposed" : ""));
          Bf16Matrix last = whole.output();
          GmmArgs args = whole.args(last, scratch.data());
          const int32_t others = 67 - rows;
          args.a = args.a.from(others, 0);
          args.c = args.c.from(others, 0);
          args.rows = rows;
          by.kernels.gmm(args);
          args.a = whole.args(last, nullptr).a;
          args.c = whole.args(last, nullptr).c;
          args.rows = others;
          by.kernels.gmm(args);
          CHECK(c.sameBits(last));
          CHECK(last.gapsAreUntouched());
        }
      }
}

}  // namespace
}  // namespace sluice::ops
