// Codes of 8-bit floats: what they stand for bit by bit, and sums of products of them, which have the bits of
// sums of the numbers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ops/reference/reference.h"
#include "tests/ops/testing/rounding_testing.h"

namespace sluice::ops {
namespace {

constexpr uint8_t kUntouched = 0xa5;

// Codes of rows and the powers of their blocks, each with gaps.
struct Encoded {
  int32_t rows, n;
  int64_t ld, ldScales;
  std::vector<uint8_t> codes;
  std::vector<BFloat16> scales, ends;

  Encoded(int32_t rows, int32_t n)
      : rows(rows),
        n(n),
        ld(n + 7),
        ldScales(n / kMxBlock + 3),
        codes(static_cast<size_t>(rows * ld), kUntouched),
        scales(static_cast<size_t>(rows * ldScales), kBf16NaN),
        ends(static_cast<size_t>(n), kBf16NaN) {}

  // By an amax there are no powers.
  bool hasPowers() const {
    const auto isTouched = [](BFloat16 power) { return power.bits != kBf16NaN.bits; };
    return std::ranges::any_of(scales, isTouched) || std::ranges::any_of(ends, isTouched);
  }
  CodeScales all() const { return {scales.data(), ldScales, ends.data(), n, 0}; }
  BFloat16 power(int32_t row, int32_t column) const {
    const int32_t block = row / kMxBlock * kMxBlock, width = n / kMxBlock;
    if (block + kMxBlock > rows) return ends[static_cast<size_t>(column)];
    return scales[static_cast<size_t>((block + column / width) * ldScales + column % width)];
  }
  double number(int32_t row, int32_t column) const {
    return double{fromE4m3(codes[static_cast<size_t>(row * ld + column)])} *
           double{toFloat(power(row, column))};
  }
  bool gapsAreUntouched() const {
    for (int32_t i = 0; i < rows; ++i)
      for (int64_t j = n; j < ld; ++j)
        if (codes[static_cast<size_t>(i * ld + j)] != kUntouched) return false;
    return true;
  }
};

// In parts of `part` columns, as tasks encode them.
Encoded encode(const Implementation& by, const Bf16Matrix& a, int32_t rows, int32_t n, Rounding rounding,
               int32_t part, float amax = 0) {
  Encoded to(rows, n);
  for (int32_t column = 0; column < n; column += part)
    by.kernels.encode({.a = {a.data() + column, a.ld()},
                       .codes = to.codes.data() + column,
                       .ldCodes = to.ld,
                       .scales = {to.scales.data(), to.ldScales, to.ends.data(), n, column},
                       .rows = rows,
                       .n = std::min(part, n - column),
                       .round = rounding,
                       .amax = amax});
  CHECK(to.gapsAreUntouched());
  return to;
}

TEST_CASE("every number of E4M3 has one code, as OCP has them") {
  CHECK(fromE4m3(0x7e) == 448);
  CHECK(fromE4m3(0x08) == 0x1p-6F);
  CHECK(fromE4m3(0x01) == 0x1p-9F);
  CHECK(fromE4m3(0x38) == 1);
  CHECK(std::isnan(fromE4m3(0xff)));
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f) CHECK(toE4m3(fromE4m3(static_cast<uint8_t>(code))) == code);
  CHECK(toE4m3(std::numeric_limits<float>::quiet_NaN()) == 0x7f);
}

TEST_CASE("codes times powers are the rounded numbers, bit by bit, at ragged and empty sizes") {
  Random random(1);
  for (const Rounding rounding : kEncodable)
    for (const int32_t rows : {0, 1, 31, 32, 33, 64, 150})
      for (const int32_t n : {32, 64, 96, 320})
        for (const int low : {-12, -1}) {
          const Bf16Matrix a = wideInput(random, rows, n, low);
          const std::vector<double> want = rounded(a, rows, n, true, rounding);
          for (const Implementation& by : implementations())
            for (const int32_t part : {32, 96, n}) {
              const Encoded found = encode(by, a, rows, n, rounding, part);
              int wrong = 0;
              for (int32_t i = 0; i < rows; ++i)
                for (int32_t j = 0; j < n; ++j) {
                  const double number = want[static_cast<size_t>(i * n + j)];
                  wrong += found.number(i, j) != number ||
                           std::signbit(found.number(i, j)) != std::signbit(number);
                }
              INFO(by.name << " rounding " << static_cast<int>(rounding) << " rows " << rows << " n " << n);
              CHECK(wrong == 0);
            }
        }
}

TEST_CASE("every bf16 number is encoded as it is rounded, in blocks of like and of mixed sizes") {
  for (const bool mixed : {false, true}) {
    const Bf16Matrix numbers = everyNumber(mixed);
    const int32_t blocks = 0x7f80 * 2 / kMxBlock, columns = (blocks + kMxBlock - 1) / kMxBlock * kMxBlock;
    Bf16Matrix a(kMxBlock, columns, columns, kBf16NaN, false);  // a block is a column
    for (int32_t i = 0; i < kMxBlock; ++i)
      for (int32_t j = 0; j < columns; ++j) a.at(i, j) = numbers.at(j % blocks, i);
    for (const Rounding rounding : kEncodable) {
      const std::vector<double> want = rounded(a, kMxBlock, columns, true, rounding);
      for (const Implementation& by : implementations()) {
        const Encoded found = encode(by, a, kMxBlock, columns, rounding, columns);
        int wrong = 0;
        for (int32_t i = 0; i < kMxBlock; ++i)
          for (int32_t j = 0; j < columns; ++j)
            wrong += found.number(i, j) != want[static_cast<size_t>(i * columns + j)];
        INFO(by.name << " rounding " << static_cast<int>(rounding) << (mixed ? " mixed" : ""));
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("a block with a NaN or an infinity has codes 0 and a NaN, and no other block changes") {
  Random random(2);
  for (const Implementation& by : implementations())
    for (const float special : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
      Bf16Matrix a = randomInput(random, 70, 64, 64);
      const Encoded before = encode(by, a, 70, 64, Rounding::kMxE4m3, 64);
      a.at(40, 9) = toBFloat16(special);
      a.at(69, 33) = toBFloat16(special);
      const Encoded found = encode(by, a, 70, 64, Rounding::kMxE4m3, 64);
      int wrong = 0;
      for (int32_t i = 0; i < 70; ++i)
        for (int32_t j = 0; j < 64; ++j) {
          const bool isBad = (j == 9 && i / kMxBlock == 1) || (j == 33 && i / kMxBlock == 2);
          wrong += isBad ? !std::isnan(found.number(i, j)) ||
                               found.codes[static_cast<size_t>(i * found.ld + j)] != 0
                         : found.number(i, j) != before.number(i, j);
        }
      INFO(by.name);
      CHECK(wrong == 0);
    }
}

// Amaxes that cut numbers, leave room, and scale by 1.
TEST_CASE("every bf16 number is encoded as it is rounded by an amax, in any part of the columns") {
  const Bf16Matrix a = everyNumber(false);
  const int32_t rows = 0x7f80 * 2 / kMxBlock, n = kMxBlock;
  for (const float amax : {1.0F, 448.0F, 3e-3F, 1.7e38F, 1e-30F, 0x1p-110F, 0x1p-111F, 0.0F, -1.0F,
                           std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::vector<double> want = rounded(a, rows, n, true, Rounding::kE4m3, amax);
    const double unit = roundingUnit(Rounding::kE4m3, amax);
    for (const Implementation& by : implementations())
      for (const int32_t part : {7, n}) {
        const Encoded found = encode(by, a, rows, n, Rounding::kE4m3, part, amax);
        CHECK(!found.hasPowers());
        int wrong = 0;
        for (int32_t i = 0; i < rows; ++i)
          for (int32_t j = 0; j < n; ++j) {
            const double number = fromE4m3(found.codes[static_cast<size_t>(i * found.ld + j)]) * unit;
            const double expected = want[static_cast<size_t>(i * n + j)];
            wrong += number != expected;
          }
        INFO(by.name << " amax " << amax << " part " << part);
        CHECK(wrong == 0);
      }
  }
}

TEST_CASE("by an amax only the NaN and the infinity become NaN, and sums of codes have their bits") {
  Random random(4);
  for (const Implementation& by : implementations())
    for (const float special :
         {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      constexpr int32_t kRows = 70, kCoded = 33, kOther = 20;
      Bf16Matrix x = randomInput(random, kRows, kCoded, kCoded + 2);
      x.at(41, 9) = toBFloat16(special);
      const Bf16Matrix g = randomInput(random, kRows, kOther, kOther);
      const Encoded found = encode(by, x, kRows, kCoded, Rounding::kE4m3, kCoded, 2);
      int nans = 0;
      for (int32_t i = 0; i < kRows; ++i)
        for (int32_t j = 0; j < kCoded; ++j)
          nans += std::isnan(fromE4m3(found.codes[static_cast<size_t>(i * found.ld + j)]));
      CHECK(nans == 1);
      CHECK(found.codes[static_cast<size_t>(41 * found.ld + 9)] == 0x7f);
      GmmWeightGradArgs args = sumOf(x, g, kRows, kCoded, kOther, Rounding::kE4m3, Rounding::kE5m2);
      args.amaxA = args.amaxB = 2;
      const F32Matrix numbers = gradient(by, args);
      args.a = {found.codes.data(), found.ld, DType::kF8_E4M3};
      CHECK(gradient(by, args).sameBits(numbers));
    }
}

TEST_CASE("sums of products of codes by an amax have the bits of sums of rounded numbers") {
  Random random(5);
  for (const int32_t rows : {0, 1, 45, 257})  // one more than the shortest block of a sum
    for (const float amax : {8.0F, 1e-2F, 0.0F})
      for (const bool ofA : {true, false})
        for (const bool scaled : {false, true}) {
          constexpr int32_t kCoded = 157, kOther = 70;
          const Bf16Matrix x = wideInput(random, rows, kCoded, -12),
                           g = randomInput(random, rows, kOther, kOther + 1);
          const std::vector<float> scale = randomFloats(random, rows);
          for (const Implementation& by : implementations()) {
            const Encoded codes = encode(by, x, rows, kCoded, Rounding::kE4m3, kCoded, amax);
            for (const auto& [first, count] : {std::pair{0, kCoded}, {51, 40}}) {
              GmmWeightGradArgs args =
                  ofA ? sumOf(x, g, rows, count, kOther, Rounding::kE4m3, Rounding::kE5m2)
                      : sumOf(g, x, rows, kOther, count, Rounding::kE5m2, Rounding::kE4m3);
              args.scale = scaled ? scale.data() : nullptr;
              args.scalesA = scaled && !ofA;
              args.amaxA = ofA ? amax : 3, args.amaxB = ofA ? 3 : amax;
              Operand& coded = ofA ? args.a : args.b;
              coded = coded.from(0, first);
              const F32Matrix numbers = gradient(by, args);
              coded = {codes.codes.data() + first, codes.ld, DType::kF8_E4M3};
              INFO(by.name << " rows " << rows << " amax " << amax << " columns from " << first
                           << (ofA ? " of a" : " of b") << (scaled ? " scaled" : ""));
              const F32Matrix found = gradient(by, args);
              CHECK(found.sameBits(numbers));
              std::vector<double> want(static_cast<size_t>(args.m) * static_cast<size_t>(args.n)),
                  ofNumbers(want);
              gmmWeightGradReference(args, want.data());
              coded = Operand{x.data(), x.ld()}.from(0, first);
              gmmWeightGradReference(args, ofNumbers.data());
              CHECK(want == ofNumbers);
            }
          }
        }
}

TEST_CASE(
    "sums of products of codes have the bits of sums of rounded numbers, for either factor and any part") {
  Random random(3);
  for (const Rounding rounding : kEncodable)
    for (const int32_t rows : {0, 1, 32, 45, 530})  // more than two of the shortest blocks of a sum
      for (const bool ofA : {true, false})
        for (const bool scaled : {false, true}) {
          constexpr int32_t kCoded = 160, kOther = 70;
          const Bf16Matrix x = wideInput(random, rows, kCoded, -6),
                           g = randomInput(random, rows, kOther, kOther + 1);
          const std::vector<float> scale = randomFloats(random, rows);
          const auto sum = [&](int32_t first, int32_t count) {
            GmmWeightGradArgs args = ofA ? sumOf(x, g, rows, count, kOther, rounding, Rounding::kMxE5m2)
                                         : sumOf(g, x, rows, kOther, count, Rounding::kMxE5m2, rounding);
            args.scale = scaled ? scale.data() : nullptr;
            args.scalesA = scaled && !ofA;
            Operand& coded = ofA ? args.a : args.b;
            coded = coded.from(0, first);
            return args;
          };
          for (const Implementation& by : implementations()) {
            const Encoded codes = encode(by, x, rows, kCoded, rounding, kCoded);
            for (const auto& [first, count] : {std::pair{0, kCoded}, {64, 40}, {48, 112}}) {
              GmmWeightGradArgs args = sum(first, count);
              const F32Matrix numbers = gradient(by, args);
              (ofA ? args.a : args.b) = Operand(codes.codes.data() + first, codes.ld, DType::kF8_E4M3);
              args.codes = codes.all();
              args.codes.firstColumn = first;
              INFO(by.name << " rows " << rows << " columns from " << first << (ofA ? " of a" : " of b")
                           << (scaled ? " scaled" : ""));
              const F32Matrix found = gradient(by, args);
              CHECK(found.sameBits(numbers));
              std::vector<double> want(static_cast<size_t>(args.m) * static_cast<size_t>(args.n));
              gmmWeightGradReference(args, want.data());
              int wrong = 0;
              for (int32_t i = 0; i < args.m; ++i)
                for (int32_t j = 0; j < args.n; ++j)
                  wrong += !agrees(found.at(i, j), want[static_cast<size_t>(i * args.n + j)],
                                   (rows + 4) * kF32Rounding * rows * 16);
              CHECK(wrong == 0);
            }
          }
        }
}

}  // namespace
}  // namespace sluice::ops
