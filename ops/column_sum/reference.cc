#include "ops/column_sum/reference.h"

namespace sluice::ops {

void columnSumReference(const ColumnSumArgs& args, double* result) {
  for (int64_t j = 0; j < args.n; ++j) {
    double sum = args.accumulate ? args.c.at(0, j) : 0;
    for (int64_t r = 0; r < args.rows; ++r) {
      const double scale = args.scale == nullptr ? 1.0 : double{args.scale[r]};
      sum += scale * double{toFloat(args.a[r * args.lda + j])};
    }
    result[j] = sum;
  }
}

}  // namespace sluice::ops
