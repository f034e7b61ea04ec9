#include "ops/combine/reference.h"

namespace sluice::ops {

template <class T>
void weightedSumReference(const WeightedSumOf<T>& args, double* result) {
  const auto at = [](const T* from, int64_t index) { return elementAt(findDType(from), from, index); };
  for (int64_t t = 0; t < args.tokens; ++t)
    for (int64_t i = 0; i < args.n; ++i) {
      double sum = 0;
      for (int64_t j = t * args.topK; j < (t + 1) * args.topK; ++j) {
        if (args.position[j] < 0) continue;
        const double weight = args.weight == nullptr ? 1.0 : double{args.weight[j]};
        for (int64_t part = 0; part < args.parts; ++part)
          sum += weight * at(args.src, (args.position[j] + part * args.partRows) * args.ldSrc + i);
      }
      if (args.bias != nullptr) sum += at(args.bias, i);
      result[t * args.n + i] = sum;
    }
}

template void weightedSumReference(const WeightedSumArgs&, double*);
template void weightedSumReference(const WeightedSumF32Args&, double*);

}  // namespace sluice::ops
