#include "ops/gmm/reference.h"

#include <vector>

#include "ops/gmm/subnormal.h"
#include "ops/rounding/reference.h"

namespace sluice::ops {

void gmmReference(const GmmArgs& args, double* result) {
  const int64_t n = args.n, k = args.k;
  std::vector<double> a, b;  // [rows, k], [k, n]
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < k; ++i) a.push_back(flushed(args.a.at(args.rowsA.of(r), i)));
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) b.push_back(flushed(args.transposeB ? args.b.at(j, i) : args.b.at(i, j)));
  roundReference({a.data(), k, 1, args.rows, k}, args.roundA, args.amaxA);
  roundReference({b.data(), k, n, n, 1}, args.roundB, args.amaxB);
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += a[static_cast<size_t>(r * k + i)] * b[static_cast<size_t>(i * n + j)];
      const double bias = args.bias == nullptr ? 0 : flushed(double{toFloat(args.bias[j])});
      result[r * n + j] = flushed(flushed(double{args.alpha} * sum) + bias);
    }
}

}  // namespace sluice::ops
