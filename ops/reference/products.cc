#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/reference/reference.h"
#include "runtime/base/dtype.h"
#include "runtime/base/rounding.h"

namespace sluice::ops {
namespace {

// Products treat numbers as zero that are subnormal in bf16 and fp32, as operands and as results.
double flushed(double x) { return std::abs(x) < 0x1p-126 ? 0 : x; }

// The nearest number of the 8-bit float, ties to even.
double nearest(double x, const RoundingInfo& info) {
  const double largest = 1.75 * std::exp2(info.largestExponent);
  if (std::abs(x) >= largest) return std::copysign(largest, x);
  const int exponent = x == 0 ? info.leastExponent : std::max(std::ilogb(x), info.leastExponent);
  const double step = std::exp2(exponent - info.mantissaBits);
  return std::nearbyint(x / step) * step;
}

double findPower(double amax, const RoundingInfo& info) {
  const double quotient = info.isFloor
                              ? std::floor(std::log2(amax)) - info.largestExponent
                              : std::ceil(std::log2(amax / (1.75 * std::exp2(info.largestExponent))));
  const double least = -126 - (info.leastExponent - info.mantissaBits);
  return std::exp2(std::clamp(quotient, least, 127.0 - info.largestExponent));
}

double findLargest(const RoundingInfo& info) { return 1.75 * std::exp2(info.largestExponent); }

bool isKnown(double amax) { return amax >= double{kLeastAmax} && std::isfinite(amax); }

void roundScaled(const FactorView& factor, const RoundingInfo& info, double amax, double unit) {
  const double down = isKnown(amax) ? static_cast<float>(findLargest(info) / amax) : 1.0F;
  for (int64_t i = 0; i < factor.sum; ++i)
    for (int64_t j = 0; j < factor.count; ++j) {
      double& x = factor.data[i * factor.sumStride + j * factor.stride];
      x = std::isfinite(x) ? nearest(static_cast<float>(flushed(x) * down), info) * unit
                           : std::numeric_limits<double>::quiet_NaN();
    }
}

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

void scaleReference(const FactorView& factor, const float* scale, double unit) {
  for (int64_t i = 0; i < factor.sum; ++i)
    for (int64_t j = 0; j < factor.count; ++j) {
      double& x = factor.data[i * factor.sumStride + j * factor.stride];
      x = toFloat(toBFloat16(static_cast<float>(x / unit * double{scale[i]}))) * unit;
    }
}

double roundingUnit(Rounding rounding, double amax) {
  const RoundingInfo& info = findInfo(rounding);
  return info.isScaled && isKnown(amax) ? static_cast<float>(amax / findLargest(info)) : 1.0F;
}

void roundReference(const FactorView& factor, Rounding rounding, double amax) {
  const RoundingInfo& info = findInfo(rounding);
  if (rounding == Rounding::kNone) return;
  if (info.isScaled) return roundScaled(factor, info, amax, roundingUnit(rounding, amax));
  const int64_t across = info.isSquare ? kMxBlock : 1;
  for (int64_t i0 = 0; i0 < factor.sum; i0 += kMxBlock)
    for (int64_t j0 = 0; j0 < factor.count; j0 += across) {
      const auto forBlock = [&](const auto& visit) {
        for (int64_t i = i0; i < std::min(i0 + kMxBlock, factor.sum); ++i)
          for (int64_t j = j0; j < std::min(j0 + across, factor.count); ++j)
            visit(factor.data[i * factor.sumStride + j * factor.stride]);
      };
      double most = 0;
      bool isFinite = true;
      forBlock([&](double& x) {
        isFinite = isFinite && std::isfinite(x);
        most = std::max(most, std::abs(x));
      });
      const double power = isFinite && most > 0 ? findPower(most, info) : 1;
      forBlock([&](double& x) {
        x = isFinite ? nearest(flushed(x) / power, info) * power : std::numeric_limits<double>::quiet_NaN();
      });
    }
}

void gmmReference(const GmmArgs& args, double* result) {
  const int64_t n = args.n, k = args.k;
  std::vector<double> a, b;  // [rows, k], [k, n]
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < k; ++i) a.push_back(flushed(args.a.at(args.rowsA.of(r), i)));
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) b.push_back(flushed(args.transposeB ? args.b.at(j, i) : args.b.at(i, j)));
  roundReference({a.data(), k, 1, args.rows, k}, args.roundA, args.amaxA);
  roundReference({b.data(), k, n, n, 1}, args.roundB, args.amaxB);
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += a[static_cast<size_t>(r * k + i)] * b[static_cast<size_t>(i * n + j)];
      const double bias = args.bias == nullptr ? 0 : flushed(double{toFloat(args.bias[j])});
      result[r * n + j] = flushed(flushed(double{args.alpha} * sum) + bias);
    }
}

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
