// Codes of 8-bit floats in blocks along rows, as tokens are sent: what they stand for bit by bit, products of
// them, and codes down columns that are made of them.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/ops/testing/rounding_testing.h"

namespace sluice::ops {
namespace {

// Codes of rows and the powers of their blocks, each with gaps.
struct EncodedRows {
  int32_t rows, n;
  int64_t ld, ldPowers;
  std::vector<uint8_t> codes;
  std::vector<BFloat16> powers;

  EncodedRows(int32_t rows, int32_t n)
      : rows(rows),
        n(n),
        ld(n + 7),
        ldPowers(n / kMxBlock + 3),
        codes(static_cast<size_t>(rows * ld), 0xa5),
        powers(static_cast<size_t>(rows * ldPowers), kBf16NaN) {}

  Operand operand() const { return {codes.data(), ld, DType::kF8_E4M3}; }
  RowPowers all() const { return {powers.data(), ldPowers}; }
  double number(int32_t row, int32_t column) const {
    return double{fromE4m3(codes[static_cast<size_t>(row * ld + column)])} *
           double{toFloat(powers[static_cast<size_t>(row * ldPowers + column / kMxBlock)])};
  }
};

EncodedRows encode(const Implementation& by, const Bf16Matrix& a, int32_t rows, int32_t n,
                   Rounding rounding) {
  EncodedRows to(rows, n);
  by.kernels.encode({.a = {a.data(), a.ld()},
                     .codes = to.codes.data(),
                     .ldCodes = to.ld,
                     .scales = {},
                     .rows = rows,
                     .n = n,
                     .round = rounding,
                     .powers = {to.powers.data(), to.ldPowers}});
  int touched = 0;
  for (int32_t i = 0; i < rows; ++i) {
    for (int64_t j = n; j < to.ld; ++j) touched += to.codes[static_cast<size_t>(i * to.ld + j)] != 0xa5;
    for (int64_t j = n / kMxBlock; j < to.ldPowers; ++j)
      touched += to.powers[static_cast<size_t>(i * to.ldPowers + j)].bits != kBf16NaN.bits;
  }
  CHECK(touched == 0);
  return to;
}

int wrongNumbers(const EncodedRows& found, const std::vector<double>& want) {
  int wrong = 0;
  for (int32_t i = 0; i < found.rows; ++i)
    for (int32_t j = 0; j < found.n; ++j)
      wrong += found.number(i, j) != want[static_cast<size_t>(i * found.n + j)];
  return wrong;
}

TEST_CASE("codes of rows times powers are the rounded numbers, bit by bit, at ragged and empty sizes") {
  Random random(1);
  for (const Rounding rounding : kEncodable)
    for (const int32_t rows : {0, 1, 31, 70})
      for (const int32_t n : {0, 32, 96, 320})
        for (const int low : {-12, -1}) {
          const Bf16Matrix a = wideInput(random, rows, n, low);
          const std::vector<double> want = rounded(a, rows, n, false, rounding);
          for (const Implementation& by : implementations()) {
            INFO(by.name << " rounding " << static_cast<int>(rounding) << " rows " << rows << " n " << n);
            CHECK(wrongNumbers(encode(by, a, rows, n, rounding), want) == 0);
          }
        }
}

TEST_CASE("every bf16 number of a row is encoded as it is rounded, in blocks of like and of mixed sizes") {
  for (const bool mixed : {false, true}) {
    const Bf16Matrix a = everyNumber(mixed);
    const int32_t rows = 0x7f80 * 2 / kMxBlock;
    for (const Rounding rounding : kEncodable) {
      const std::vector<double> want = rounded(a, rows, kMxBlock, false, rounding);
      for (const Implementation& by : implementations()) {
        INFO(by.name << " rounding " << static_cast<int>(rounding) << (mixed ? " mixed" : ""));
        CHECK(wrongNumbers(encode(by, a, rows, kMxBlock, rounding), want) == 0);
      }
    }
  }
}

TEST_CASE("a NaN or an infinity makes a NaN of its block of the row, and of no other number") {
  Random random(2);
  for (const Implementation& by : implementations())
    for (const float special : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
      Bf16Matrix a = randomInput(random, 9, 96, 96);
      const EncodedRows before = encode(by, a, 9, 96, Rounding::kMxE4m3);
      a.at(4, 40) = toBFloat16(special);
      const EncodedRows found = encode(by, a, 9, 96, Rounding::kMxE4m3);
      int wrong = 0;
      for (int32_t i = 0; i < 9; ++i)
        for (int32_t j = 0; j < 96; ++j) {
          const bool isBad = i == 4 && j / kMxBlock == 1;
          wrong += isBad ? !std::isnan(found.number(i, j)) : found.number(i, j) != before.number(i, j);
        }
      INFO(by.name);
      CHECK(wrong == 0);
    }
}

TEST_CASE("products of rows of codes have the bits of products that round the rows") {
  Random random(3);
  for (const Rounding rounding : kEncodable)
    for (const int32_t rows : {0, 1, 4, 17, 130, 400})
      for (const auto& [n, k] : {std::pair{64, 64}, {100, 352}, {7, 2112}, {0, 32}, {32, 0}})
        for (const bool transposed : {false, true}) {
          const Bf16Matrix a = wideInput(random, rows, k, -6);
          const Bf16Matrix b =
              transposed ? randomInput(random, n, k, k + 1) : randomInput(random, k, n, n + 2);
          for (const Implementation& by : implementations()) {
            GmmArgs args = {};
            args.a = {a.data(), a.ld()};
            args.b = {b.data(), b.ld()};
            args.rows = rows, args.n = n, args.k = k;
            args.transposeB = transposed;
            args.alpha = 0.37F;
            args.roundA = rounding, args.roundB = Rounding::kMxE4m3;
            const auto multiply = [&] {
              Bf16Matrix c(rows, n, n + 3, kBf16Canary, true);
              Scratch scratch(by.kernels.gmmScratchBytes(n, k));
              args.c = {c.data(), c.ld()};
              args.scratch = scratch.data();
              by.kernels.gmm(args);
              CHECK(c.gapsAreUntouched());
              return c;
            };
            const Bf16Matrix want = multiply();
            const EncodedRows codes = encode(by, a, rows, k, rounding);
            args.a = codes.operand();
            args.powersA = codes.all();
            INFO(by.name << " rows " << rows << " n " << n << " k " << k
                         << (transposed ? " transposed" : ""));
            CHECK(multiply().sameBits(want));
          }
        }
}

// What is kept of rows that arrive as codes.
TEST_CASE(
    "codes down columns of the numbers that codes of rows stand for are those of the numbers themselves") {
  Random random(4);
  for (const Rounding rounding : kEncodable)
    for (const int32_t rows : {0, 1, 33, 64, 150})
      for (const int32_t n : {32, 160}) {
        const Bf16Matrix a = wideInput(random, rows, n, -10);
        for (const Implementation& by : implementations()) {
          const EncodedRows sent = encode(by, a, rows, n, rounding);
          Bf16Matrix numbers(rows, n, n, kBf16NaN, false);
          for (int32_t i = 0; i < rows; ++i)
            for (int32_t j = 0; j < n; ++j)
              numbers.at(i, j) = toBFloat16(static_cast<float>(sent.number(i, j)));
          const auto down = [&](Operand from, RowPowers powers, std::vector<BFloat16>& scales) {
            std::vector<uint8_t> codes(static_cast<size_t>(rows * n));
            scales.assign(static_cast<size_t>(rows * n / kMxBlock + n), kBf16NaN);
            by.kernels.encode(
                {.a = from,
                 .codes = codes.data(),
                 .ldCodes = n,
                 .scales = {scales.data(), n / kMxBlock, scales.data() + rows * n / kMxBlock, n, 0},
                 .rows = rows,
                 .n = n,
                 .round = rounding,
                 .powersA = powers});
            return codes;
          };
          std::vector<BFloat16> scales, want;
          const std::vector<uint8_t> found = down(sent.operand(), sent.all(), scales);
          INFO(by.name << " rows " << rows << " n " << n);
          CHECK(found == down({numbers.data(), numbers.ld()}, {}, want));
          CHECK(std::ranges::equal(scales, want, {}, &BFloat16::bits, &BFloat16::bits));
        }
      }
}

}  // namespace
}  // namespace sluice::ops
