#include "ops/gmm_weight_grad/reference.h"

#include <vector>

#include "ops/gmm/subnormal.h"
#include "ops/rounding/reference.h"
#include "runtime/base/rounding.h"

namespace sluice::ops {
namespace {

// Codes of q(x s), times 1 / s.
void unscaleReference(const FactorView& codes, double unit) {
  for (int64_t i = 0; i < codes.sum; ++i)
    for (int64_t j = 0; j < codes.count; ++j) codes.data[i * codes.sumStride + j * codes.stride] *= unit;
}

// Codes times the powers of their blocks.
void decodeReference(const FactorView& codes, const CodeScales& scales) {
  for (int64_t i = 0; i < codes.sum; ++i)
    for (int64_t j = 0; j < codes.count; ++j) {
      const int64_t block = i / kMxBlock * kMxBlock, column = scales.firstColumn + j;
      const int64_t width = scales.columns / kMxBlock;
      const bool isWhole = block + kMxBlock <= codes.sum;
      const BFloat16 power = isWhole ? scales.scales[(block + column / width) * scales.ld + column % width]
                                     : scales.ends[column];
      codes.data[i * codes.sumStride + j * codes.stride] *= double{toFloat(power)};
    }
}

std::vector<double> factor(const Operand& of, const RowIndex& index, int64_t rows, int64_t columns,
                           const float* scale) {
  std::vector<double> numbers;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j)
      numbers.push_back(flushed(of.at(index.of(r), j)) * (scale == nullptr ? 1.0 : double{scale[r]}));
  return numbers;
}

}  // namespace

void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result) {
  const int64_t m = args.m, n = args.n;
  const bool isRounded = args.roundA != Rounding::kNone || args.roundB != Rounding::kNone;
  std::vector<double> a = factor(args.a, args.rowsA, args.rows, m, isRounded ? nullptr : args.scale);
  std::vector<double> b = factor(args.b, args.rowsB, args.rows, n, nullptr);
  const FactorView ofB{b.data(), args.rows, n, n, 1};
  const FactorView ofA{a.data(), args.rows, m, m, 1};
  const auto round = [&](const FactorView& factor, const Operand& of, Rounding rounding, double amax,
                         bool isScaled) {
    if (of.type != DType::kBF16 && findInfo(rounding).isScaled)
      return unscaleReference(factor, roundingUnit(rounding, amax));
    if (of.type != DType::kBF16) return decodeReference(factor, args.codes);
    const bool scales = isScaled && isRounded && args.scale != nullptr;
    if (scales && !findInfo(rounding).isScaled) scaleReference(factor, args.scale, 1);
    roundReference(factor, rounding, amax);
    if (scales && findInfo(rounding).isScaled)
      scaleReference(factor, args.scale, roundingUnit(rounding, amax));
  };
  round(ofA, args.a, args.roundA, args.amaxA, args.scalesA);
  round(ofB, args.b, args.roundB, args.amaxB, !args.scalesA);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double before = args.accumulate ? flushed(args.c.at(i, j)) : 0;
      double sum = 0;
      for (int64_t r = 0; r < args.rows; ++r)
        sum += flushed(a[static_cast<size_t>(r * m + i)]) * b[static_cast<size_t>(r * n + j)];
      result[i * n + j] = flushed(before + flushed(double{args.alpha} * sum));
    }
}

}  // namespace sluice::ops
