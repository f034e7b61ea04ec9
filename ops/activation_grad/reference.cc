#include "ops/activation_grad/reference.h"

#include "runtime/abi/activation.h"

namespace sluice::ops {

void activationGradReference(const ActivationGradArgs& args, double* gateUpGrad, double* rowWeightGrad) {
  const ActivationInfo& info = findInfo(args.kind);
  for (int64_t r = 0; r < args.rows; ++r) {
    const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
    const BFloat16* const up = gate + findUpColumn(args.kind, args.upColumn, args.inter);
    const double weight = args.rowWeight == nullptr ? 1.0 : double{args.rowWeight[r]};
    double* const grad = gateUpGrad + r * info.inputs * args.inter;
    rowWeightGrad[r] = 0;
    for (int64_t i = 0; i < args.inter; ++i) {
      const double d = toFloat(args.actGrad[r * args.ldActGrad + i]);
      const ActivationPoint point = activationAt(args.kind, args.limit, toFloat(gate[i]), toFloat(up[i]));
      grad[i] = weight * d * point.gateSlope();
      if (info.isGated()) grad[args.inter + i] = weight * d * point.upSlope();
      rowWeightGrad[r] += d * point.act();
    }
  }
}

}  // namespace sluice::ops
