#include "ops/scale/reference.h"

namespace sluice::ops {

template <class T>
void scaleReference(const ScaleOf<T>& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < args.n; ++j)
      result[r * args.n + j] = double{args.alpha} * elementAt(dtypeOf(args.a), args.a, r * args.lda + j);
}

template void scaleReference(const ScaleArgs&, double*);
template void scaleReference(const ScaleF32Args&, double*);

}  // namespace sluice::ops
