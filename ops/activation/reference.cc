#include "ops/activation/reference.h"

#include "ops/abi/activation.h"

namespace sluice::ops {

void activationReference(const ActivationArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < args.inter; ++i) {
      const BFloat16* const row = args.gateUp + r * args.ldGateUp;
      result[r * args.inter + i] =
          activationAt(args.kind, args.limit, toFloat(row[i]), toFloat(row[args.inter + i])).act();
    }
}

}  // namespace sluice::ops
