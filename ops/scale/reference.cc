#include "ops/scale/reference.h"

namespace sluice::ops {

void scaleReference(const ScaleArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < args.n; ++j)
      result[r * args.n + j] = double{args.alpha} * double{toFloat(args.a[r * args.lda + j])};
}

}  // namespace sluice::ops
