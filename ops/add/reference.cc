#include "ops/add/reference.h"

namespace sluice::ops {

void addReference(const AddArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < args.n; ++j)
      result[r * args.n + j] =
          double{toFloat(args.a[r * args.lda + j])} + double{toFloat(args.b[r * args.ldb + j])};
}

}  // namespace sluice::ops
