// Every implementation of gmm_weight_grad against the reference.
#include <bit>
#include <catch2/catch.hpp>
#include <type_traits>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

struct Shape {
  int32_t rows, m, n;
};

struct Case {
  Shape shape;
  Bf16Matrix a, b;
  std::vector<float> scale;

  Case(Random& random, Shape s, bool scaled, int64_t gap = 5, int64_t offset = 0)
      : shape(s),
        a(randomInput(random, s.rows, s.m, s.m + gap, offset)),
        b(randomInput(random, s.rows, s.n, s.n + gap, offset)),
        scale(scaled ? randomFloats(random, s.rows) : std::vector<float>{}) {}

  F32Matrix output() const { return F32Matrix(shape.m, shape.n, shape.n + 3, kF32Canary, true); }

  GmmWeightGradArgs args(F32Matrix& c, void* scratch) const {
    return {.a = {a.data(), a.ld()},
            .b = {b.data(), b.ld()},
            .scale = scale.empty() ? nullptr : scale.data(),
            .c = {c.data(), c.ld()},
            .rows = shape.rows,
            .m = shape.m,
            .n = shape.n,
            .scratch = scratch};
  }

  void run(const Implementation& by, F32Matrix& c, int fill = 0xff, bool accumulate = false) const {
    Scratch scratch(by.kernels.weightGradScratchBytes(shape.m, shape.n), fill);
    GmmWeightGradArgs all = args(c, scratch.data());
    all.accumulate = accumulate;
    by.kernels.gmmWeightGrad(all);
  }

  std::vector<double> reference() const {
    F32Matrix c = output();
    std::vector<double> result(static_cast<size_t>(shape.m) * shape.n);
    gmmWeightGradReference(args(c, nullptr), result.data());
    return result;
  }

  std::vector<double> sizes() const {
    Case positive = *this;
    positive.a = magnitudes(a, shape.rows, shape.m);
    positive.b = magnitudes(b, shape.rows, shape.n);
    for (float& s : positive.scale) s = std::abs(s);
    return positive.reference();
  }
};

// The reference takes longer than most implementations do.
void checkAll(const Case& test) {
  const std::vector<double> want = test.reference();
  const std::vector<double> size = test.sizes();
  for (const Implementation& by : implementations()) {
    INFO(by.name << " rows " << test.shape.rows << " m " << test.shape.m << " n " << test.shape.n
                 << (test.scale.empty() ? "" : " scaled"));
    F32Matrix c = test.output();
    test.run(by, c);
    const double product = by.multipliesBf16 && !test.scale.empty() ? kBf16Rounding : kF32Rounding;
    int wrong = 0;
    for (int32_t i = 0; i < test.shape.m; ++i)
      for (int32_t j = 0; j < test.shape.n; ++j) {
        const size_t at = static_cast<size_t>(i) * test.shape.n + j;
        if (!agrees(c.at(i, j), want[at], ((test.shape.rows + 4) * kF32Rounding + product) * size[at]))
          ++wrong;
      }
    CHECK(wrong == 0);
    CHECK(c.gapsAreUntouched());
  }
}

TEST_CASE("every gmm_weight_grad agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (int32_t rows : {0, 1, 2, 15, 16, 17, 33, 130})
    for (auto [m, n] : {std::pair{1, 1},
                        {1, 257},
                        {2, 7},
                        {7, 2},
                        {16, 33},
                        {31, 64},
                        {33, 31},
                        {64, 16},
                        {100, 100},
                        {257, 1},
                        {65, 130},
                        {0, 5},
                        {5, 0}})
      for (bool scaled : {false, true}) checkAll(Case(random, {rows, m, n}, scaled));
}

TEST_CASE("every gmm_weight_grad agrees with the reference where rows, columns and sum take several blocks") {
  Random random(2);
  for (bool scaled : {false, true}) {
    checkAll(Case(random, {64, 200, 40}, scaled));
    checkAll(Case(random, {61, 390, 130}, scaled));
    checkAll(Case(random, {1061, 37, 70}, scaled));
    checkAll(Case(random, {2049, 9, 33}, scaled));
  }
}

TEST_CASE("every gmm_weight_grad of gathered rows has the bits of the same rows one after the other") {
  Random random(11);
  for (const Implementation& by : implementations())
    for (bool scaled : {false, true})
      for (Shape shape :
           {Shape{0, 5, 7}, Shape{1, 1, 1}, Shape{31, 33, 70}, Shape{97, 200, 40}, Shape{1061, 37, 130}})
        for (const auto& [ofA, ofB] : {std::pair{true, false}, {false, true}, {true, true}}) {
          INFO(by.name << " rows " << shape.rows << " m " << shape.m << (ofA ? " a" : "")
                       << (ofB ? " b" : ""));
          Case test(random, shape, scaled);
          const GatheredRows a(random, shape.rows, shape.m), b(random, shape.rows, shape.n);
          if (ofA) test.a = a.copied();
          if (ofB) test.b = b.copied();
          F32Matrix c = test.output(), again = test.output();
          test.run(by, c);
          Scratch scratch(by.kernels.weightGradScratchBytes(shape.m, shape.n));
          GmmWeightGradArgs args = test.args(again, scratch.data());
          if (ofA) args.a = a.matrix(), args.rowsA = a.index();
          if (ofB) args.b = b.matrix(), args.rowsB = b.index();
          by.kernels.gmmWeightGrad(args);
          CHECK(again.sameBits(c));
          CHECK(again.gapsAreUntouched());
        }
}

TEST_CASE("a gmm_weight_grad without gaps between its rows reads nothing else") {
  Random random(3);
  for (bool scaled : {false, true})
    for (Shape shape : {Shape{3, 5, 7}, Shape{19, 67, 41}}) checkAll(Case(random, shape, scaled, 0, 1));
}

TEST_CASE("gmm_weight_grad passes NaN and infinities to the elements they belong to and no others") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int32_t rows : {9, 64, 301}) {
    Random random(4);
    Case test(random, {rows, 21, 37}, true);
    test.a.at(rows - 1, 20) = toBFloat16(infinity);
    test.a.at(0, 3) = kBf16NaN;
    test.b.at(rows - 1, 36) = toBFloat16(-infinity);
    test.b.at(rows / 2, 5) = toBFloat16(0);
    test.scale[rows / 2] = infinity;
    checkAll(test);
  }
}

TEST_CASE("every gmm_weight_grad that accumulates adds the product to what was there, in one addition") {
  Random random(6);
  for (const Implementation& by : implementations())
    for (bool scaled : {false, true})
      for (Shape shape : {Shape{1, 1, 1}, Shape{17, 33, 31}, Shape{31, 20, 150}, Shape{33, 65, 130},
                          Shape{1061, 37, 70}, Shape{64, 200, 40}}) {
        INFO(by.name << " rows " << shape.rows << " m " << shape.m << " n " << shape.n);
        const Case test(random, shape, scaled);
        F32Matrix product = test.output(), sum = test.output(), want = test.output();
        test.run(by, product);
        for (int32_t i = 0; i < shape.m; ++i)
          for (int32_t j = 0; j < shape.n; ++j) {
            sum.at(i, j) = uniform(random, -3, 3);
            want.at(i, j) = sum.at(i, j) + product.at(i, j);
          }
        test.run(by, sum, 0xff, true);
        CHECK(sum.sameBits(want));
        CHECK(sum.gapsAreUntouched());
      }
}

TEST_CASE("a gmm_weight_grad that accumulates touches nothing where there are no rows") {
  Random random(7);
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    const Case test(random, {0, 21, 37}, true);
    F32Matrix c = test.output();
    for (int32_t i = 0; i < 21; ++i)
      for (int32_t j = 0; j < 37; ++j) c.at(i, j) = j % 2 == 0 ? -0.0f : 1.5f;
    F32Matrix before = c;
    test.run(by, c, 0xff, true);
    CHECK(c.sameBits(before));
    CHECK(c.gapsAreUntouched());
  }
}

// The required weight gradient, from the product alone that the kernel writes: (before) + alpha * product.
template <class T>
struct Variant {
  Matrix<T> c, want;
  bool accumulate;
  float alpha;
};

template <class T>
Variant<T> makeVariant(Random& random, const Case& test, const F32Matrix& product, bool accumulate,
                       float alpha, T canary) {
  const auto [rows, m, n] = test.shape;
  // rows of whole cache lines, which are streamed, have no gaps
  const int64_t ld = n % 64 == 0 ? n : n + 3;
  Variant<T> v{{m, n, ld, canary, true}, {m, n, ld, canary, true}, accumulate, alpha};
  const auto make = [](float x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return toBFloat16(x);
  };
  const auto value = [](T x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return toFloat(x);
  };
  for (int32_t i = 0; i < m; ++i)
    for (int32_t j = 0; j < n; ++j) {
      v.c.at(i, j) = make(accumulate ? uniform(random, -3, 3) : NAN);
      const float sum = product.at(i, j) * alpha;
      v.want.at(i, j) = make(accumulate ? value(v.c.at(i, j)) + sum : sum);
    }
  return v;
}

TEST_CASE("every gmm_weight_grad multiplies by alpha and stores fp32 or bf16 with one rounding") {
  Random random(8);
  for (const Implementation& by : implementations())
    for (Shape shape :
         {Shape{1, 1, 1}, Shape{17, 33, 31}, Shape{1061, 37, 70}, Shape{64, 200, 40}, Shape{33, 21, 128}})
      for (bool accumulate : {false, true})
        for (float alpha : {1.0f, 0.37f}) {
          INFO(by.name << " rows " << shape.rows << " m " << shape.m << " n " << shape.n << " alpha "
                       << alpha);
          const Case test(random, shape, true);
          F32Matrix product = test.output();
          test.run(by, product);
          auto wide = makeVariant<float>(random, test, product, accumulate, alpha, kF32Canary);
          auto narrow = makeVariant<BFloat16>(random, test, product, accumulate, alpha, kBf16Canary);
          Scratch scratch(by.kernels.weightGradScratchBytes(shape.m, shape.n));
          GmmWeightGradArgs args = test.args(wide.c, scratch.data());
          args.accumulate = accumulate;
          args.alpha = alpha;
          by.kernels.gmmWeightGrad(args);
          args.c = {narrow.c.data(), narrow.c.ld()};
          by.kernels.gmmWeightGrad(args);
          CHECK(wide.c.sameBits(wide.want));
          CHECK(wide.c.gapsAreUntouched());
          CHECK(narrow.c.sameBits(narrow.want));
          CHECK(narrow.c.gapsAreUntouched());
        }
}

TEST_CASE("a gmm_weight_grad in bf16 without rows writes zeros, or touches nothing where it accumulates") {
  Random random(9);
  for (const Implementation& by : implementations())
    for (bool accumulate : {false, true}) {
      INFO(by.name);
      const Case test(random, {0, 21, 37}, false);
      Bf16Matrix c(21, 37, 40, kBf16Canary, true), want = c;
      if (!accumulate)
        for (int32_t i = 0; i < 21; ++i)
          for (int32_t j = 0; j < 37; ++j) want.at(i, j) = BFloat16{0};
      Scratch scratch(by.kernels.weightGradScratchBytes(21, 37));
      F32Matrix unused = test.output();
      GmmWeightGradArgs args = test.args(unused, scratch.data());
      args.c = {c.data(), c.ld()};
      args.accumulate = accumulate;
      by.kernels.gmmWeightGrad(args);
      CHECK(c.sameBits(want));
      CHECK(c.gapsAreUntouched());
    }
}

TEST_CASE("the reference of a gmm_weight_grad that accumulates starts from what was there") {
  const BFloat16 a = toBFloat16(2), b = toBFloat16(3);
  float c = 0.5f;
  double result = 0;
  gmmWeightGradReference({{&a, 1}, {&b, 1}, nullptr, {&c, 1}, 1, 1, 1, nullptr, true}, &result);
  CHECK(result == 6.5);
  CHECK(c == 0.5f);
  BFloat16 narrow = toBFloat16(0.25f);
  gmmWeightGradReference({{&a, 1}, {&b, 1}, nullptr, {&narrow, 1}, 1, 1, 1, nullptr, true, 2}, &result);
  CHECK(result == 12.25);
}

TEST_CASE("gmm_weight_grad gives the same bits whatever the alignment and the old content of the scratch") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Random first(5), second(5);
    const Case one(first, {517, 37, 83}, true, 5, 0);
    const Case other(second, {517, 37, 83}, true, 14, 3);
    F32Matrix c = one.output(), again = one.output(), elsewhere = other.output();
    one.run(by, c, 0xff);
    one.run(by, again, 0);
    other.run(by, elsewhere, 0x7f);
    CHECK(c.sameBits(again));
    CHECK(c.sameBits(elsewhere));
  }
}

TEST_CASE(
    "gmm_weight_grad gives the same bits in lines of the cache as in rows across them, and writes no more") {
  Random random(10);
  for (const Implementation& by : implementations())
    for (Shape shape :
         {Shape{0, 7, 64}, Shape{4, 13, 208}, Shape{29, 23, 208}, Shape{33, 21, 96}, Shape{517, 200, 130}}) {
      INFO(by.name << " rows " << shape.rows << " m " << shape.m << " n " << shape.n);
      const Case test(random, shape, true);
      F32Matrix across = test.output();
      test.run(by, across);
      const int64_t ld = 256;  // a multiple of a line in fp32 and bf16, as the lines begin on one
      Scratch lines(static_cast<size_t>(shape.m * ld) * sizeof(float), 0x7e);
      Scratch scratch(by.kernels.weightGradScratchBytes(shape.m, shape.n));
      GmmWeightGradArgs args = test.args(across, scratch.data());
      args.c = {static_cast<float*>(lines.data()), ld};
      by.kernels.gmmWeightGrad(args);
      int wrong = 0;
      const float untouched = std::bit_cast<float>(0x7e7e7e7e);
      for (int64_t i = 0; i < shape.m; ++i)
        for (int64_t j = 0; j < ld; ++j)
          wrong += args.c.at(i, j) != (j < shape.n ? across.at(i, j) : untouched);
      CHECK(wrong == 0);
      Scratch narrowLines(static_cast<size_t>(shape.m * ld) * sizeof(BFloat16), 0x7e);
      auto* const narrow = static_cast<BFloat16*>(narrowLines.data());
      args.c = {narrow, ld};
      by.kernels.gmmWeightGrad(args);
      int wrongNarrow = 0;
      for (int64_t i = 0; i < shape.m; ++i)
        for (int64_t j = 0; j < ld; ++j)
          wrongNarrow +=
              narrow[i * ld + j].bits != (j < shape.n ? toBFloat16(across.at(i, j)).bits : uint16_t{0x7e7e});
      CHECK(wrongNarrow == 0);
    }
}

}  // namespace
}  // namespace sluice::ops
