#include "ops/gmm_weight_grad/reference.h"

#include "ops/gmm/subnormal.h"

namespace sluice::ops {

void gmmWeightGradReference(const GmmWeightGradArgs& args, double* result) {
  for (int64_t i = 0; i < args.m; ++i)
    for (int64_t j = 0; j < args.n; ++j) {
      const double before = args.accumulate ? flushed(args.c.at(i, j)) : 0;
      double sum = 0;
      for (int64_t r = 0; r < args.rows; ++r) {
        const double scale = args.scale == nullptr ? 1.0 : double{args.scale[r]};
        sum += flushed(flushed(args.a.at(r, i)) * scale) * flushed(args.b.at(r, j));
      }
      result[i * args.n + j] = flushed(before + flushed(double{args.alpha} * sum));
    }
}

}  // namespace sluice::ops
