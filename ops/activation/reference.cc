#include "ops/activation/reference.h"

#include <cmath>

namespace sluice::ops {

void swigluReference(const SwigluArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < args.inter; ++i) {
      const BFloat16* const row = args.gateUp + r * args.ldGateUp;
      const double gate = toFloat(row[i]);
      const double up = toFloat(row[args.inter + i]);
      result[r * args.inter + i] = gate / (1 + std::exp(-gate)) * up;
    }
}

}  // namespace sluice::ops
