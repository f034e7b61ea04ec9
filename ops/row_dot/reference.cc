#include "ops/row_dot/reference.h"

namespace sluice::ops {

void rowDotReference(const RowDotArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r) {
    double sum = args.addend == nullptr ? 0 : double{args.addend[r]};
    for (int64_t j = 0; j < args.n; ++j)
      sum += double{toFloat(args.a[r * args.lda + j])} * double{toFloat(args.b[j])};
    result[r] = sum;
  }
}

}  // namespace sluice::ops
