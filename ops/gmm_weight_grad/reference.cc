#include "ops/gmm_weight_grad/reference.h"

#include "ops/gmm/subnormal.h"

namespace sluice::ops {

void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result) {
  for (int64_t i = 0; i < args.m; ++i)
    for (int64_t j = 0; j < args.n; ++j) {
      const int64_t at = i * args.ldc + j;
      double before = 0, sum = 0;
      if (args.accumulate)
        before = flushed(double{args.narrow == nullptr ? args.c[at] : toFloat(args.narrow[at])});
      for (int64_t r = 0; r < args.rows; ++r) {
        const double scale = args.scale == nullptr ? 1.0 : double{args.scale[r]};
        sum += flushed(operandOf(args.a[r * args.lda + i]) * scale) * operandOf(args.b[r * args.ldb + j]);
      }
      result[i * args.n + j] = flushed(before + flushed(double{args.alpha} * sum));
    }
}

}  // namespace sluice::ops
