// Products of codes: the same bits by every implementation. Products of bf16 and codes: those of the decoded
// weight.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

// The edges of tiles; then more than one block of rows (385), of the sum (1025; with AMX 4161), and of both.
constexpr ProductShape kShapes[] = {{1, 1, 1},       {3, 7, 5},       {0, 5, 4},     {5, 0, 3},
                                    {2, 3, 0},       {15, 33, 64},    {16, 64, 65},  {17, 100, 31},
                                    {33, 65, 257},   {130, 16, 1030}, {7, 70, 2049}, {3, 40, 4161},
                                    {385, 18, 1025}, {6, 256, 511}};

Matrix<int8_t> randomCodes(Random& random, int64_t rows, int64_t cols, int64_t gap = 3) {
  Matrix<int8_t> codes(rows, cols, cols + gap, 99, false);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) codes.at(r, c) = static_cast<int8_t>(random() % 256 - 128);
  return codes;
}

std::vector<float> randomScales(Random& random, int64_t count) {
  std::vector<float> scales(static_cast<size_t>(count));
  for (float& scale : scales) scale = uniform(random, 0.001F, 0.01F);
  return scales;
}

std::vector<BFloat16> randomBias(Random& random, int32_t n) {
  std::vector<BFloat16> bias(static_cast<size_t>(n));
  for (BFloat16& value : bias) value = toBFloat16(uniform(random, -1, 1));
  return bias;
}

void run(const Implementation& by, GmmArgs args, bool packed) {
  const ProductTypes types{args.a.type, args.b.type, args.c.type};
  Scratch scratch(by.kernels.gmmScratchBytes(args.n, args.k, types));
  Scratch weight(packed ? by.kernels.packedWeightBytes(args.n, args.k, types) : 0);
  if (packed) {
    by.kernels.packWeight({args.b, args.n, args.k, args.transposeB, weight.data(), args.a.type});
    args.packedB = weight.data();
    args.b.data = nullptr;
  }
  args.scratch = scratch.data();
  by.kernels.gmm(args);
}

std::vector<int32_t> exactSums(const ProductShape& s, const Matrix<int8_t>& a, const Matrix<int8_t>& b,
                               bool transposed) {
  std::vector<int32_t> sums;
  for (int32_t r = 0; r < s.rows; ++r)
    for (int32_t j = 0; j < s.n; ++j) {
      int32_t sum = 0;
      for (int32_t i = 0; i < s.k; ++i) sum += a.at(r, i) * (transposed ? b.at(j, i) : b.at(i, j));
      sums.push_back(sum);
    }
  return sums;
}

// The definition in kernels.h, step by step.
void codesReference(const GmmArgs& args, const std::vector<int32_t>& sums, const float* columnScales,
                    Bf16Matrix& c) {
  for (int32_t r = 0; r < args.rows; ++r)
    for (int32_t j = 0; j < args.n; ++j) {
      const int32_t sum = sums[static_cast<size_t>(r) * static_cast<size_t>(args.n) + static_cast<size_t>(j)];
      float x = static_cast<float>(sum) * (args.alpha * args.rowScale[r]);
      if (columnScales != nullptr) x *= columnScales[j];
      if (args.bias != nullptr) x += toFloat(args.bias[j]);
      c.at(r, j) = toBFloat16(x);
    }
}

TEST_CASE("products of codes have the bits of exact sums, whatever multiplies them") {
  Random random(1);
  for (const ProductShape& s : kShapes)
    for (const bool transposed : {false, true}) {
      const Matrix<int8_t> a = randomCodes(random, s.rows, s.k);
      const Matrix<int8_t> b = transposed ? randomCodes(random, s.n, s.k) : randomCodes(random, s.k, s.n);
      const std::vector<int32_t> sums = exactSums(s, a, b, transposed);
      for (const auto& [withBias, withScale] :
           {std::pair{false, true}, {true, true}, {false, false}, {true, false}}) {
        const std::vector<float> rowScale = randomScales(random, s.rows), scale = randomScales(random, s.n);
        const std::vector<BFloat16> bias = randomBias(random, s.n);
        const auto argsFor = [&](Bf16Matrix& c) {
          const BlockScales scales = !withScale   ? BlockScales{}
                                     : transposed ? BlockScales{scale.data(), 1, 1, std::max(s.k, 1)}
                                                  : BlockScales{scale.data(), s.n, std::max(s.k, 1), 1};
          return GmmArgs{.a = {a.data(), a.ld()},
                         .b = {b.data(), b.ld()},
                         .c = {c.data(), c.ld()},
                         .rows = s.rows,
                         .n = s.n,
                         .k = s.k,
                         .transposeB = transposed,
                         .scratch = nullptr,
                         .alpha = 0.5F,
                         .bias = withBias ? bias.data() : nullptr,
                         .rowScale = rowScale.data(),
                         .scaleB = scales};
        };
        Bf16Matrix want(s.rows, s.n, s.n + 3, kBf16Canary, true);
        codesReference(argsFor(want), sums, withScale ? scale.data() : nullptr, want);
        for (const Implementation& by : implementations())
          for (const bool packed : {false, true}) {
            INFO(by.name << " rows " << s.rows << " n " << s.n << " k " << s.k
                         << (transposed ? " transposed" : "") << (packed ? " packed" : "")
                         << (withScale ? "" : " without scales"));
            Bf16Matrix c(s.rows, s.n, s.n + 3, kBf16Canary, true);
            run(by, argsFor(c), packed);
            CHECK(c.sameBits(want));
            CHECK(c.gapsAreUntouched());
          }
      }
    }
}

TEST_CASE("the largest sums of codes are exact") {
  constexpr auto kLongest = static_cast<int32_t>(kMaxCodes);
  Matrix<int8_t> a(1, kLongest, kLongest, 0, false), b(kLongest, 2, 2, 0, false);
  for (int32_t i = 0; i < kLongest; ++i) a.at(0, i) = b.at(i, 0) = -128, b.at(i, 1) = 127;
  const float one[2] = {1, 1};
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Bf16Matrix c(1, 2, 2, kBf16Canary, true);
    run(by,
        {.a = {a.data(), a.ld()},
         .b = {b.data(), b.ld()},
         .c = {c.data(), c.ld()},
         .rows = 1,
         .n = 2,
         .k = kLongest,
         .transposeB = false,
         .scratch = nullptr,
         .rowScale = one,
         .scaleB = {one, 2, kLongest, 1}},
        false);
    CHECK(toFloat(c.at(0, 0)) == 0x1p30F);
    CHECK(toFloat(c.at(0, 1)) == toFloat(toBFloat16(-0x1p30F + 0x1p23F)));
  }
}

TEST_CASE("a row whose scale is NaN gives NaN, and no other row does") {
  Random random(2);
  const Matrix<int8_t> a = randomCodes(random, 3, 9), b = randomCodes(random, 9, 4);
  const float rowScale[] = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  const std::vector<float> scale = randomScales(random, 4);
  for (const Implementation& by : implementations()) {
    Bf16Matrix c(3, 4, 4, kBf16Canary, true);
    run(by,
        {.a = {a.data(), a.ld()},
         .b = {b.data(), b.ld()},
         .c = {c.data(), c.ld()},
         .rows = 3,
         .n = 4,
         .k = 9,
         .transposeB = false,
         .scratch = nullptr,
         .rowScale = rowScale,
         .scaleB = {scale.data(), 4, 9, 1}},
        false);
    for (int32_t r = 0; r < 3; ++r)
      for (int32_t j = 0; j < 4; ++j) CHECK(std::isnan(toFloat(c.at(r, j))) == (r == 1));
  }
}

Matrix<uint8_t> randomE4m3(Random& random, int64_t rows, int64_t cols) {
  Matrix<uint8_t> codes(rows, cols, cols + 3, 99, false);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      codes.at(r, c) = static_cast<uint8_t>(random() % 256 & 0xfe);  // no NaN
  return codes;
}

float numberOf(int8_t code) { return code; }
float numberOf(uint8_t code) { return fromE4m3(code); }

// By every implementation, `args` with the codes and scales give the bits that they give with the numbers.
void checkLikeDecoded(GmmArgs args, const Bf16Matrix& decoded, const Operand& codes,
                      const BlockScales& scales) {
  for (const Implementation& by : implementations()) {
    INFO(by.name << " rows " << args.rows << " n " << args.n << " k " << args.k
                 << (args.transposeB ? " transposed" : "") << " blocks of " << scales.rows << " x "
                 << scales.columns << " from column " << scales.firstColumn);
    Bf16Matrix want(args.rows, args.n, args.n + 3, kBf16Canary, true), c = want;
    args.b = {decoded.data(), decoded.ld()};
    args.scaleB = {};
    args.c = {want.data(), want.ld()};
    run(by, args, false);
    args.b = codes;
    args.scaleB = scales;
    args.c = {c.data(), c.ld()};
    run(by, args, false);
    CHECK(c.sameBits(want));
    CHECK(c.gapsAreUntouched());
  }
}

// Blocks have blockRows x blockColumns elements of the weight as it lies, from (2, 3) of that matrix on.
template <class Code>
void checkDecoded(Random& random, const ProductShape& s, bool transposed, int32_t blockRows,
                  int32_t blockColumns) {
  const int32_t high = transposed ? s.n : s.k, wide = transposed ? s.k : s.n;
  const Bf16Matrix a = randomInput(random, s.rows, s.k, s.k + 5);
  constexpr bool kIsFloat = std::is_same_v<Code, uint8_t>;
  Matrix<Code> b(0, 0, 0, 0, false);
  if constexpr (kIsFloat)
    b = randomE4m3(random, high, wide);
  else
    b = randomCodes(random, high, wide);
  const int32_t across = (wide + 3) / blockColumns + 1;
  std::vector<float> scale = randomScales(random, int64_t{(high + 2) / blockRows + 1} * across);
  for (float& x : scale)
    if (random() % 40 == 0) x = random() % 2 == 0 ? 0x1p96F : 0x1p108F;  // too large for roundByProducts()
  Bf16Matrix decoded(high, wide, wide, kBf16NaN, false);
  for (int32_t i = 0; i < high; ++i)
    for (int32_t j = 0; j < wide; ++j)
      decoded.at(i, j) =
          toBFloat16(numberOf(b.at(i, j)) *
                     scale[static_cast<size_t>((i + 2) / blockRows * across + (j + 3) / blockColumns)]);
  const std::vector<BFloat16> bias = randomBias(random, s.n);
  const GmmArgs args{.a = {a.data(), a.ld()},
                     .b = {decoded.data(), decoded.ld()},
                     .c = {},
                     .rows = s.rows,
                     .n = s.n,
                     .k = s.k,
                     .transposeB = transposed,
                     .scratch = nullptr,
                     .alpha = 0.75F,
                     .bias = bias.data()};
  checkLikeDecoded(args, decoded, {b.data(), b.ld(), kIsFloat ? DType::kF8_E4M3 : DType::kI8},
                   {scale.data(), across, blockRows, blockColumns, 2, 3});
}

TEST_CASE("products with codes have the bits of those with the decoded weight, for any blocks of scales") {
  Random random(3);
  for (const ProductShape& s : kShapes)
    for (const bool transposed : {false, true})
      for (const auto& [rows, columns] :
           {std::pair{1, 5000}, {5000, 1}, {32, 1}, {1, 32}, {128, 128}, {3, 5}})
        checkDecoded<int8_t>(random, s, transposed, rows, columns);
}

TEST_CASE("products with codes of E4M3 have the bits of those with the decoded weight") {
  Random random(4);
  for (const ProductShape& s : kShapes)
    for (const bool transposed : {false, true})
      for (const auto& [rows, columns] : {std::pair{128, 128}, {1, 5000}, {3, 1}})
        checkDecoded<uint8_t>(random, s, transposed, rows, columns);
}

// The number of a scale of that type, and some that are at an end, or NaN.
double numberOfScale(DType type, uint8_t code) {
  return type == DType::kF8_E8M0 ? std::ldexp(1.0, code - 127) : fromE4m3(code);
}
uint8_t drawScale(Random& random, DType type) {
  constexpr uint8_t kEnds[] = {0, 1, 2, 3, 4, 251, 252, 253, 254, 255};
  constexpr uint8_t kEndsOfE4m3[] = {0, 1, 7, 8, 0x7e, 0x7f, 0x80, 0x81, 0xfe};
  const bool isPower = type == DType::kF8_E8M0;
  if (random() % 40 != 0) return static_cast<uint8_t>((isPower ? 120 : 0x30) + random() % 16);
  return isPower ? kEnds[random() % std::size(kEnds)] : kEndsOfE4m3[random() % std::size(kEndsOfE4m3)];
}

// The codes of 4 bits and the scales of blocks begin at (2, column) of their matrix.
void checkE2m1(Random& random, const ProductShape& s, DType type, bool transposed, int32_t blockRows,
               int32_t blockColumns, int32_t column) {
  const int32_t high = transposed ? s.n : s.k, wide = transposed ? s.k : s.n;
  const Bf16Matrix a = randomInput(random, s.rows, s.k, s.k + 5);
  Matrix<uint8_t> b(high, (wide + 1) / 2, (wide + 1) / 2 + 3, 99, false);
  for (int64_t r = 0; r < high; ++r)
    for (int64_t c = 0; c < (wide + 1) / 2; ++c) b.at(r, c) = static_cast<uint8_t>(random() % 256);
  const int32_t across = (wide + column) / blockColumns + 1;
  std::vector<uint8_t> scales(static_cast<size_t>(int64_t{(high + 2) / blockRows + 1} * across));
  for (uint8_t& scale : scales) scale = drawScale(random, type);
  constexpr float kNumbers[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  Bf16Matrix decoded(high, wide, wide, kBf16NaN, false);
  for (int32_t i = 0; i < high; ++i)
    for (int32_t j = 0; j < wide; ++j) {
      const uint8_t code = b.at(i, j / 2) >> (j % 2 * 4) & 15;
      const uint8_t scale =
          scales[static_cast<size_t>((i + 2) / blockRows * across + (j + column) / blockColumns)];
      const bool isNan = scale == (type == DType::kF8_E8M0 ? 0xff : 0x7f);
      const double number = (code < 8 ? 1 : -1) * kNumbers[code % 8] * numberOfScale(type, scale);
      const BFloat16 nan = {static_cast<uint16_t>(type == DType::kF8_E8M0 ? 0x7fc0 : 0x7ff0)};
      decoded.at(i, j) = isNan ? nan : toBFloat16(static_cast<float>(number));
      if (number == 0 && !isNan) decoded.at(i, j) = {0};
    }
  const GmmArgs args{.a = {a.data(), a.ld()},
                     .b = {},
                     .c = {},
                     .rows = s.rows,
                     .n = s.n,
                     .k = s.k,
                     .transposeB = transposed,
                     .scratch = nullptr};
  checkLikeDecoded(args, decoded, {b.data(), 2 * b.ld(), DType::kU8},
                   {.data = scales.data(),
                    .ld = across,
                    .rows = blockRows,
                    .columns = blockColumns,
                    .firstRow = 2,
                    .firstColumn = column,
                    .type = type});
}

TEST_CASE("products with codes of E2M1 have the bits of those with the decoded weight") {
  Random random(5);
  for (const ProductShape& s : kShapes)
    for (const bool transposed : {false, true})
      for (const auto& [type, rows, columns, first] : {std::tuple{DType::kF8_E8M0, 1, 32, 0},
                                                       {DType::kF8_E8M0, 1, 32, 64},
                                                       {DType::kF8_E8M0, 32, 1, 6},
                                                       {DType::kF8_E8M0, 1, 32, 3},
                                                       {DType::kF8_E8M0, 3, 5, 0},
                                                       {DType::kF8_E4M3, 1, 16, 16},
                                                       {DType::kF8_E4M3, 16, 1, 0},
                                                       {DType::kF8_E4M3, 3, 5, 0}})
        checkE2m1(random, s, type, transposed, rows, columns, first);
}

TEST_CASE("a NaN of E4M3 or of a scale is one in all products with its column") {
  constexpr int32_t kSum = 48, kColumns = 24;  // whole vectors
  const Bf16Matrix a(2, kSum, kSum, {0x3f80}, false);
  std::vector<float> scales(kColumns, 1);
  scales[5] = std::bit_cast<float>(0x7fffffffu);  // rounded as other numbers are, it would be -0
  for (const bool transposed : {false, true}) {
    Matrix<uint8_t> b(transposed ? kColumns : kSum, transposed ? kSum : kColumns,
                      transposed ? kSum : kColumns, 0x38, false);
    (transposed ? b.at(2, 17) : b.at(17, 2)) = 0xff;
    for (const Implementation& by : implementations()) {
      Bf16Matrix c(2, kColumns, kColumns, kBf16Canary, true);
      run(by,
          {.a = {a.data(), a.ld()},
           .b = {b.data(), b.ld(), DType::kF8_E4M3},
           .c = {c.data(), c.ld()},
           .rows = 2,
           .n = kColumns,
           .k = kSum,
           .transposeB = transposed,
           .scratch = nullptr,
           .scaleB = {scales.data(), transposed ? 1 : kColumns, transposed ? 1 : 128, transposed ? 128 : 1}},
          false);
      INFO((transposed ? "transposed" : "as it lies"));
      for (int32_t r = 0; r < 2; ++r)
        for (int32_t j = 0; j < kColumns; ++j) {
          const float found = toFloat(c.at(r, j));
          CHECK((j == 2 || j == 5 ? std::isnan(found) : found == kSum));
        }
    }
  }
}

}  // namespace
}  // namespace sluice::ops
