#include "ops/gmm_weight_grad/reference.h"

#include <vector>

#include "ops/gmm/subnormal.h"
#include "ops/rounding/reference.h"
#include "runtime/base/rounding.h"

namespace sluice::ops {
namespace {

std::vector<double> factor(const Operand& of, int64_t rows, int64_t columns, const float* scale) {
  std::vector<double> numbers;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j)
      numbers.push_back(flushed(of.at(r, j)) * (scale == nullptr ? 1.0 : double{scale[r]}));
  return numbers;
}

}  // namespace

void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result) {
  const int64_t m = args.m, n = args.n;
  const bool isRounded = args.roundA != Rounding::kNone || args.roundB != Rounding::kNone;
  std::vector<double> a = factor(args.a, args.rows, m, isRounded ? nullptr : args.scale);
  std::vector<double> b = factor(args.b, args.rows, n, nullptr);
  const FactorView ofB{b.data(), args.rows, n, n, 1};
  roundReference({a.data(), args.rows, m, m, 1}, args.roundA, args.amaxA);
  if (infoOf(args.roundB).isScaled) roundReference(ofB, args.roundB, args.amaxB);
  if (isRounded && args.scale != nullptr) scaleReference(ofB, args.scale, unitOf(args.roundB, args.amaxB));
  if (!infoOf(args.roundB).isScaled) roundReference(ofB, args.roundB);
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
