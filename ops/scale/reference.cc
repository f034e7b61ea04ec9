#include "ops/scale/reference.h"

namespace sluice::ops {

template <class T>
void scaleReference(const ScaleOf<T>& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float factor = args.rowWeight == nullptr ? args.alpha : args.alpha * args.rowWeight[r];
    for (int64_t j = 0; j < args.n; ++j)
      result[r * args.n + j] = double{factor} * elementAt(findDType(args.a), args.a, r * args.lda + j);
  }
}

template void scaleReference(const ScaleArgs&, double*);
template void scaleReference(const ScaleF32Args&, double*);

}  // namespace sluice::ops
