#include "ops/activation_grad/reference.h"

#include <cmath>

namespace sluice::ops {

void swigluGradReference(const SwigluGradArgs& args, double* gateUpGrad, double* rowWeightGrad) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const BFloat16* const row = args.gateUp + r * args.ldGateUp;
    const double weight = args.rowWeight == nullptr ? 1.0 : double{args.rowWeight[r]};
    double* const grad = gateUpGrad + r * 2 * args.inter;
    rowWeightGrad[r] = 0;
    for (int64_t i = 0; i < args.inter; ++i) {
      const double gate = toFloat(row[i]);
      const double up = toFloat(row[args.inter + i]);
      const double actGrad = toFloat(args.actGrad[r * args.ldActGrad + i]);
      const double s = 1 / (1 + std::exp(-gate));
      grad[i] = weight * actGrad * up * s * (1 + gate * (1 - s));
      grad[args.inter + i] = weight * actGrad * gate * s;
      rowWeightGrad[r] += actGrad * gate * s * up;
    }
  }
}

}  // namespace sluice::ops
