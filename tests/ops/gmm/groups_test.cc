// Products of weights with codes of 4 bits: with rows of codes the same bits by every implementation, and
// with rows of bf16 those of the decoded weight.
#include <catch2/catch.hpp>

#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

Matrix<int8_t> randomRows(Random& random, int64_t rows, int64_t k) {
  Matrix<int8_t> codes(rows, k, k + 3, 99, false);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < k; ++c) codes.at(r, c) = static_cast<int8_t>(random() % 256 - 128);
  return codes;
}

std::vector<float> randomNumbers(Random& random, int64_t count, float least, float most) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = uniform(random, least, most);
  return numbers;
}

// A weight [high, wide] as it lies, with blocks of scales of that type from (2, 4) of another matrix on: less
// than any group. Beside scales of 16 bits zeros are codes.
class Weight {
 public:
  Weight(Random& random, int32_t high, int32_t wide, int32_t blockRows, int32_t blockColumns, bool hasZeros,
         bool hasScales = true, DType type = DType::kF32, uint8_t setBits = 0)
      : codes_(high, (wide + 1) / 2, (wide + 1) / 2 + 1, 99, false) {
    for (int64_t i = 0; i < high; ++i)
      for (int64_t j = 0; j < (wide + 1) / 2; ++j) codes_.at(i, j) = static_cast<uint8_t>(random() | setBits);
    const int32_t across = (wide + 3) / blockColumns + 1;
    const int64_t blocks = int64_t{(high + 1) / blockRows + 1} * across;
    scale_ = randomNumbers(random, blocks, 0.001F, 0.01F);
    zero_ = randomNumbers(random, blocks, -0.05F, 0.01F);
    scales_ = {
        scale_.data(), across, blockRows, blockColumns, kRow, kColumn, hasZeros ? zero_.data() : nullptr,
        type};
    if (type != DType::kF32) storeInHalves(random);
    if (!hasScales) scales_.data = nullptr;
  }

  Operand operand() const { return {codes_.data(), 2 * codes_.ld(), DType::kU8}; }
  const BlockScales& scales() const { return scales_; }
  int32_t code(int64_t i, int64_t j) const { return codes_.at(i, j / 2) >> 4 * (j % 2) & 15; }
  float scale(int64_t i, int64_t j) const { return scales_.data == nullptr ? 1 : scale_[blockAt(i, j)]; }
  float zero(int64_t i, int64_t j) const { return zero_[blockAt(i, j)]; }
  bool hasZeros() const { return scales_.zero != nullptr; }

 private:
  static constexpr int32_t kRow = 2, kColumn = 4;
  // Scales and zeros become what their types can have, a few of them at an end.
  void storeInHalves(Random& random) {
    constexpr float kEnds[] = {0, 0x1p-24F, 0x1.8p-20F, -0x1p-14F, 0x1.fp12F};
    for (size_t i = 0; i < scale_.size(); ++i) {
      if (random() % 20 == 0) scale_[i] = kEnds[random() % std::size(kEnds)];
      const auto at = static_cast<int64_t>(i);
      halves_.push_back(0), counted_.push_back(static_cast<int8_t>(random() % 18 - 1));
      setElement(scales_.type, halves_.data(), at, scale_[i]);
      scale_[i] = static_cast<float>(elementAt(scales_.type, halves_.data(), at));
      zero_[i] = -static_cast<float>(counted_[i]) * scale_[i];
    }
    scales_.data = halves_.data();
    if (scales_.zero != nullptr) scales_.zero = counted_.data();
  }
  size_t blockAt(int64_t i, int64_t j) const {
    return static_cast<size_t>((i + kRow) / scales_.rows * scales_.ld + (j + kColumn) / scales_.columns);
  }

  Matrix<uint8_t> codes_;
  std::vector<float> scale_, zero_;
  std::vector<uint16_t> halves_;
  std::vector<int8_t> counted_;
  BlockScales scales_;
};

void runScaled(const Implementation& by, GmmArgs args, bool packed) {
  const ProductTypes types{args.a.type, args.b.type, args.c.type};
  const PackedScales scales{args.transposeB ? args.scaleB.columns : args.scaleB.rows,
                            args.scaleB.zero != nullptr, args.scaleB.type};
  Scratch scratch(by.kernels.gmmScratchBytes(args.n, args.k, types));
  Scratch weight(packed ? by.kernels.packedWeightBytes(args.n, args.k, types, scales) : 0);
  if (packed) {
    by.kernels.packWeight({args.b, args.n, args.k, args.transposeB, weight.data(), args.a.type, args.scaleB});
    args.packedB = weight.data();
    args.b.data = nullptr;
    args.scaleB = {nullptr, 0, args.scaleB.rows, args.scaleB.columns,
                   0,       0, args.scaleB.zero, args.scaleB.type};
  }
  args.scratch = scratch.data();
  by.kernels.gmm(args);
}

// The definition in kernels.h, step by step; groups begin at the first number of the sum.
void groupsReference(const GmmArgs& args, const Matrix<int8_t>& a, const Weight& weight, int32_t group,
                     Bf16Matrix& c) {
  const int32_t stretch = std::min(group, kMaxStretch);
  for (int32_t r = 0; r < args.rows; ++r)
    for (int32_t j = 0; j < args.n; ++j) {
      float total = 0;
      for (int32_t at = 0; at < args.k; at += stretch) {
        int32_t sum = 0, ofRow = 0;
        for (int32_t i = at; i < std::min(at + stretch, args.k); ++i) {
          const int32_t code = args.transposeB ? weight.code(j, i) : weight.code(i, j);
          sum += a.at(r, i) * (code - (weight.hasZeros() ? 0 : 8));
          ofRow += a.at(r, i);
        }
        // blocks begin where the operand does, along the sum
        const int32_t row = args.transposeB ? j : at, column = args.transposeB ? at : j;
        float term = static_cast<float>(sum) * weight.scale(row, column);
        if (weight.hasZeros()) term += static_cast<float>(ofRow) * weight.zero(row, column);
        total += term;
      }
      float x = total * (args.alpha * args.rowScale[r]);
      if (args.bias != nullptr) x += toFloat(args.bias[j]);
      c.at(r, j) = toBFloat16(x);
    }
}

struct GroupsShape {
  ProductShape shape;
  int32_t group;
};

constexpr GroupsShape kGroups[] = {
    {{1, 2, 32}, 32},     {{3, 64, 64}, 32},    {{7, 66, 128}, 64},     {{16, 130, 256}, 128},
    {{33, 34, 288}, 32},  {{5, 10, 2112}, 64},  {{1, 100, 2048}, 128},  {{65, 18, 1024}, 512},
    {{13, 70, 100}, 100}, {{6, 18, 6}, 6},      {{17, 18, 2310}, 2310}, {{385, 4, 320}, 32},
    {{0, 4, 32}, 32},     {{4, 0, 32}, 32},     {{3, 34, 4352}, 256},   {{40, 34, 1056}, 32},
    {{1, 2, 6}, 6},       {{31, 62, 254}, 254},
};

void checkGroups(Random& random, const GroupsShape& of, const Matrix<int8_t>& a, const Weight& weight,
                 bool transposed) {
  const auto& [s, group] = of;
  const std::vector<float> rowScale = randomNumbers(random, s.rows, 0.001F, 0.01F);
  std::vector<BFloat16> bias(static_cast<size_t>(s.n));
  for (BFloat16& value : bias) value = toBFloat16(uniform(random, -1, 1));
  // along the sum, groups begin with the operand
  BlockScales scales = weight.scales();
  (transposed ? scales.firstColumn : scales.firstRow) = 0;
  GmmArgs args{.a = {a.data(), a.ld()},
               .b = weight.operand(),
               .c = {},
               .rows = s.rows,
               .n = s.n,
               .k = s.k,
               .transposeB = transposed,
               .scratch = nullptr,
               .alpha = 0.5F,
               .bias = s.rows % 2 != 0 ? bias.data() : nullptr,
               .rowScale = rowScale.data(),
               .scaleB = scales};
  Bf16Matrix want(s.rows, s.n, s.n + 3, kBf16Canary, true);
  groupsReference(args, a, weight, group, want);
  for (const Implementation& by : implementations())
    for (const bool packed : {false, true}) {
      INFO(by.name << " rows " << s.rows << " n " << s.n << " k " << s.k << " group " << group
                   << (transposed ? " transposed" : "") << (weight.hasZeros() ? " zeros" : "")
                   << (weight.scales().data != nullptr ? "" : " without scales") << " scales of "
                   << dtypeName(weight.scales().type) << (packed ? " packed" : ""));
      Bf16Matrix c(s.rows, s.n, s.n + 3, kBf16Canary, true);
      args.c = {c.data(), c.ld()};
      runScaled(by, args, packed);
      CHECK(c.sameBits(want));
      CHECK(c.gapsAreUntouched());
    }
}

TEST_CASE("products of codes in groups have the same bits, whatever multiplies them") {
  Random random(1);
  for (const GroupsShape& of : kGroups)
    for (const bool transposed : {false, true})
      for (const auto& [hasZeros, hasScales, type] : {std::tuple{false, true, DType::kF32},
                                                      {true, true, DType::kF32},
                                                      {false, false, DType::kF32},
                                                      {true, true, DType::kF16},
                                                      {false, true, DType::kBF16}}) {
        const auto& [s, group] = of;
        const Matrix<int8_t> a = randomRows(random, s.rows, s.k);
        const Weight weight(random, transposed ? s.n : s.k, transposed ? s.k : s.n, transposed ? 1 : group,
                            transposed ? group : 1, hasZeros, hasScales, type);
        checkGroups(random, of, a, weight, transposed);
      }
}

TEST_CASE("the largest sums of groups are exact") {
  Random random(3);
  for (const GroupsShape& of : {GroupsShape{{1, 18, 96}, 32}, {{7, 34, 512}, 256}, {{3, 16, 38}, 38}})
    for (const int8_t code : {int8_t{-128}, int8_t{127}}) {
      const auto& [s, group] = of;
      Matrix<int8_t> a(s.rows, s.k, s.k + 3, 99, false);
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t c = 0; c < s.k; ++c) a.at(r, c) = code;
      const Weight weight(random, s.n, s.k, 1, group, true, true, DType::kF32, 0xFF);  // all codes are 15
      checkGroups(random, of, a, weight, true);
    }
}

void checkDecoded(Random& random, const ProductShape& s, bool transposed, int32_t blockRows,
                  int32_t blockColumns, bool hasZeros, DType type) {
  const int32_t high = transposed ? s.n : s.k, wide = transposed ? s.k : s.n;
  const Bf16Matrix a = randomInput(random, s.rows, s.k, s.k + 5);
  const Weight weight(random, high, wide, blockRows, blockColumns, hasZeros, true, type);
  Bf16Matrix decoded(high, wide, wide, kBf16NaN, false);
  for (int32_t i = 0; i < high; ++i)
    for (int32_t j = 0; j < wide; ++j) {
      const auto code = static_cast<float>(weight.code(i, j) - (hasZeros ? 0 : 8));
      const float product = code * weight.scale(i, j);
      decoded.at(i, j) = toBFloat16(hasZeros ? product + weight.zero(i, j) : product);
    }
  GmmArgs args{.a = {a.data(), a.ld()},
               .b = {},
               .c = {},
               .rows = s.rows,
               .n = s.n,
               .k = s.k,
               .transposeB = transposed,
               .scratch = nullptr,
               .alpha = 0.75F};
  for (const Implementation& by : implementations()) {
    INFO(by.name << " rows " << s.rows << " n " << s.n << " k " << s.k << (transposed ? " transposed" : "")
                 << " blocks of " << blockRows << " x " << blockColumns << (hasZeros ? " zeros" : "")
                 << " scales of " << dtypeName(type));
    Bf16Matrix want(s.rows, s.n, s.n + 3, kBf16Canary, true), c = want;
    args.b = {decoded.data(), decoded.ld()};
    args.scaleB = {};
    args.c = {want.data(), want.ld()};
    runScaled(by, args, false);
    args.b = weight.operand();
    args.scaleB = weight.scales();
    args.c = {c.data(), c.ld()};
    runScaled(by, args, false);
    CHECK(c.sameBits(want));
    CHECK(c.gapsAreUntouched());
  }
}

TEST_CASE("products of bf16 with codes of 4 bits have the bits of those with the decoded weight") {
  constexpr ProductShape kShapes[] = {{1, 2, 2},      {3, 8, 6},    {0, 6, 4},     {5, 0, 4},
                                      {2, 4, 0},      {15, 34, 64}, {17, 100, 32}, {33, 66, 258},
                                      {130, 4, 1030}, {3, 34, 2050}};
  Random random(2);
  for (const ProductShape& s : kShapes)
    for (const bool transposed : {false, true})
      for (const auto& [rows, columns] :
           {std::pair{1, 5000}, {5000, 1}, {32, 1}, {1, 32}, {128, 128}, {3, 5}})
        for (const bool hasZeros : {false, true})
          for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
            checkDecoded(random, s, transposed, rows, columns, hasZeros, type);
}

}  // namespace
}  // namespace sluice::ops
