#include "ops/activation/reference.h"

#include "runtime/abi/activation.h"

namespace sluice::ops {

void activationReference(const ActivationArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < args.inter; ++i) {
      const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
      const BFloat16* const up = gate + findUpColumn(args.kind, args.upColumn, args.inter);
      result[r * args.inter + i] =
          activationAt(args.kind, args.limit, toFloat(gate[i]), toFloat(up[i])).act();
    }
}

}  // namespace sluice::ops
