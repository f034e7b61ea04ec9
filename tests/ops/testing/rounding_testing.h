// Inputs and references of rounded factors, and sums of products of them.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "ops/reference/reference.h"
#include "runtime/base/rounding.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {

// How numbers are rounded of which there are codes.
inline constexpr Rounding kEncodable[] = {Rounding::kMxE4m3, Rounding::kMxE4m3Floor};

// The reference of a matrix [rows, columns] whose sum runs along its columns or, with `down`, its rows.
inline std::vector<double> rounded(const Bf16Matrix& matrix, int32_t rows, int32_t columns, bool down,
                                   Rounding rounding, double amax = 0) {
  std::vector<double> numbers;
  for (int32_t i = 0; i < rows; ++i)
    for (int32_t j = 0; j < columns; ++j) numbers.push_back(toFloat(matrix.at(i, j)));
  roundReference(down ? FactorView{numbers.data(), rows, columns, columns, 1}
                      : FactorView{numbers.data(), columns, 1, rows, columns},
                 rounding, amax);
  return numbers;
}

// Numbers of many sizes: of each block, some that round to 0 and some that saturate.
inline Bf16Matrix wideInput(Random& random, int64_t rows, int64_t columns, int low = -12, int high = 3) {
  Bf16Matrix matrix = randomInput(random, rows, columns, columns + 5);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const int power = low + static_cast<int>(random() % static_cast<unsigned>(high - low));
      matrix.at(i, j) = toBFloat16(std::ldexp(toFloat(matrix.at(i, j)), power));
    }
  return matrix;
}

// All finite bf16 numbers as rows of blocks: a block has one exponent, or `mixed` ones.
inline Bf16Matrix everyNumber(bool mixed) {
  constexpr int32_t kRows = 0x7f80 * 2 / kMxBlock;
  Bf16Matrix matrix(kRows, kMxBlock, kMxBlock, kBf16NaN, false);
  for (int32_t at = 0; at < kRows * kMxBlock; ++at) {
    // an odd factor permutes the numbers of 16 bits
    const int32_t bits = mixed ? (at * 3697) & 0xffff : at;
    const int32_t finite = (bits & 0x7fff) < 0x7f80 ? bits : 0;
    matrix.at(at / kMxBlock, at % kMxBlock) = {static_cast<uint16_t>(finite)};
  }
  return matrix;
}

inline GmmWeightGradArgs sumOf(const Bf16Matrix& a, const Bf16Matrix& b, int32_t rows, int32_t m, int32_t n,
                               Rounding roundA, Rounding roundB) {
  GmmWeightGradArgs args = {};
  args.a = {a.data(), a.ld()};
  args.b = {b.data(), b.ld()};
  args.rows = rows;
  args.m = m;
  args.n = n;
  args.alpha = 1;
  args.roundA = roundA;
  args.roundB = roundB;
  return args;
}

inline F32Matrix gradient(const Implementation& by, GmmWeightGradArgs args) {
  F32Matrix c(args.m, args.n, args.n + 3, kF32Canary, true);
  Scratch scratch(by.kernels.weightGradScratchBytes(args.m, args.n));
  args.c = {c.data(), c.ld()};
  args.scratch = scratch.data();
  by.kernels.gmmWeightGrad(args);
  CHECK(c.gapsAreUntouched());
  return c;
}

}  // namespace sluice::ops
