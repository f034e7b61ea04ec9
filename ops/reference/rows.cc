#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/reference/reference.h"
#include "runtime/abi/activation.h"

namespace sluice::ops {

void activationReference(const ActivationArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < args.inter; ++i) {
      const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
      const BFloat16* const up = gate + findUpColumn(args.kind, args.upColumn, args.inter);
      result[r * args.inter + i] =
          activationAt(args.kind, args.limit, toFloat(gate[i]), toFloat(up[i])).act();
    }
}

void activationGradReference(const ActivationGradArgs& args, double* gateUpGrad, double* rowWeightGrad) {
  const ActivationInfo& info = findInfo(args.kind);
  for (int64_t r = 0; r < args.rows; ++r) {
    const BFloat16* const gate = args.gateUp + r * args.ldGateUp;
    const BFloat16* const up = gate + findUpColumn(args.kind, args.upColumn, args.inter);
    const double weight = args.rowWeight == nullptr ? 1.0 : double{args.rowWeight[r]};
    double* const grad = gateUpGrad + r * info.inputs * args.inter;
    rowWeightGrad[r] = 0;
    for (int64_t i = 0; i < args.inter; ++i) {
      const double d = toFloat(args.actGrad[r * args.ldActGrad + i]);
      const ActivationPoint point = activationAt(args.kind, args.limit, toFloat(gate[i]), toFloat(up[i]));
      grad[i] = weight * d * point.gateSlope();
      if (info.isGated()) grad[args.inter + i] = weight * d * point.upSlope();
      rowWeightGrad[r] += d * point.act();
    }
  }
}

void gatherRowsReference(const GatherRowsArgs& args, std::byte* result) {
  for (int64_t i = 0; i < args.rows; ++i) {
    const int64_t index = args.index == nullptr ? i : args.index[i];
    for (int64_t j = 0; j < args.bytes; ++j)
      result[i * args.bytes + j] =
          index < 0 ? std::byte{0} : args.src[(index / args.divisor) * args.srcStride + j];
  }
}

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

void addReference(const AddArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t j = 0; j < args.n; ++j)
      result[r * args.n + j] =
          double{toFloat(args.a[r * args.lda + j])} + double{toFloat(args.b[r * args.ldb + j])};
}

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

void rowDotReference(const RowDotArgs& args, double* result) {
  for (int64_t r = 0; r < args.rows; ++r) {
    double sum = args.addend == nullptr ? 0 : double{args.addend[r]};
    for (int64_t j = 0; j < args.n; ++j)
      sum += double{toFloat(args.a[r * args.lda + j])} * double{toFloat(args.b[j])};
    result[r] = sum;
  }
}

void quantizeReference(const QuantizeArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const BFloat16* const a = args.a + r * args.lda;
    // a product or quotient of doubles of 24 bits each, rounded to fp32, is the same as computed in fp32
    const auto at = [&](int64_t j) {
      const double scale = args.columnScale == nullptr ? 1 : double{args.columnScale[j]};
      return double{static_cast<float>(double{toFloat(a[j])} * scale)};
    };
    double amax = 0;
    bool isFinite = true;
    for (int64_t j = 0; j < args.n; ++j) {
      isFinite = isFinite && std::isfinite(at(j));
      amax = std::max(amax, std::abs(at(j)));
    }
    const bool isTiny = amax < double{kLeastQuantised};
    const auto factor = static_cast<float>(127 / amax);
    for (int64_t j = 0; j < args.n; ++j) {
      const auto scaled = static_cast<float>(at(j) * double{factor});
      args.codes[r * args.ldCodes + j] =
          isFinite && !isTiny ? static_cast<int8_t>(std::nearbyint(double{scaled})) : int8_t{0};
    }
    args.scale[r] = !isFinite ? std::numeric_limits<float>::quiet_NaN()
                    : isTiny  ? 1
                              : static_cast<float>(amax / 127);
  }
}

}  // namespace sluice::ops
