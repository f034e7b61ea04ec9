#include "ops/gmm/reference.h"

#include "ops/gmm/subnormal.h"

namespace sluice::ops {

void gmmReference(const GmmArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < args.k; ++i) {
        const double weight = args.transposeB ? args.b.at(j, i) : args.b.at(i, j);
        sum += flushed(args.a.at(r, i)) * flushed(weight);
      }
      const double bias = args.bias == nullptr ? 0 : flushed(double{toFloat(args.bias[j])});
      result[r * args.n + j] = flushed(flushed(double{args.alpha} * sum) + bias);
    }
}

}  // namespace sluice::ops
