#include "ops/rounding/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/gmm/subnormal.h"
#include "runtime/base/dtype.h"
#include "runtime/base/rounding.h"

namespace sluice::ops {
namespace {

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

}  // namespace sluice::ops
