#include "ops/quantize/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::ops {

void quantizeReference(const QuantizeArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const BFloat16* const a = args.a + r * args.lda;
    // a product or quotient of doubles of 24 bits each, rounded to fp32, is the same as computed in fp32
    const auto at = [&](int64_t j) {
      const double scale = args.columnScale == nullptr ? 1 : double{args.columnScale[j]};
      return double{static_cast<float>(double{toFloat(a[j])} * scale)};
    };
    double amax = 0;
    bool isFinite = true;
    for (int64_t j = 0; j < args.n; ++j) {
      isFinite = isFinite && std::isfinite(at(j));
      amax = std::max(amax, std::abs(at(j)));
    }
    const bool isTiny = amax < double{kLeastQuantised};
    const auto factor = static_cast<float>(127 / amax);
    for (int64_t j = 0; j < args.n; ++j) {
      const auto scaled = static_cast<float>(at(j) * double{factor});
      args.codes[r * args.ldCodes + j] =
          isFinite && !isTiny ? static_cast<int8_t>(std::nearbyint(double{scaled})) : int8_t{0};
    }
    args.scale[r] = !isFinite ? std::numeric_limits<float>::quiet_NaN()
                    : isTiny  ? 1
                              : static_cast<float>(amax / 127);
  }
}

}  // namespace sluice::ops
