#include "tests/gpu/row_work_reference.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/reference/reference.h"

namespace sluice::gpu {
namespace {

constexpr int kBf16 = 2, kFp32 = 4;

int inputColumns(const RowWorkSizes& sizes) { return findInfo(sizes.kind).inputs * sizes.columns; }

template <class T>
void weightedSum(const RowWorkSizes& sizes, const std::vector<HostRows*>& in, const int32_t* positions,
                 double* result) {
  ops::WeightedSumOf<T> args{};
  args.src = in[0]->elements<T>();
  args.ldSrc = in[0]->leading();
  args.position = positions;
  args.weight = sizes.hasWeights ? in[1]->elements<float>() : nullptr;
  args.tokens = sizes.rows;
  args.topK = sizes.topK;
  args.n = sizes.columns;
  args.parts = sizes.parts;
  args.partRows = partRowsOf(sizes);
  args.bias = sizes.hasLast ? in[2]->elements<T>() : nullptr;
  ops::weightedSumReference(args, result);
}

void scalarSum(const RowWorkSizes& sizes, HostRows& in, const std::vector<int32_t>& positions,
               std::vector<double>& result) {
  for (size_t i = 0; i < result.size(); ++i)
    for (int part = 0; part < sizes.parts && positions[i] >= 0; ++part)
      result[i] += in.value(positions[i] + part * partRowsOf(sizes), 0);
}

template <class T>
void scale(const RowWorkSizes& sizes, const std::vector<HostRows*>& in, double* result) {
  ops::ScaleOf<T> args{};
  args.a = in[0]->elements<T>();
  args.lda = in[0]->leading();
  args.rows = sizes.rows;
  args.n = sizes.columns;
  args.alpha = effectiveAlpha(sizes);
  args.rowWeight = sizes.hasWeights ? in[1]->elements<float>() : nullptr;
  ops::scaleReference(args, result);
}

void columnSum(const RowWorkSizes& sizes, const std::vector<HostRows*>& in, HostRows& start, double* result) {
  ops::ColumnSumArgs args{};
  args.a = in[0]->elements<BFloat16>();
  args.lda = in[0]->leading();
  args.scale = sizes.hasWeights ? in[1]->elements<float>() : nullptr;
  args.c = {start.row(0), start.leading(), sizes.isFp32 ? DType::kF32 : DType::kBF16};
  args.rows = sizes.rows;
  args.n = sizes.columns;
  args.accumulate = sizes.accumulates;
  ops::columnSumReference(args, result);
}

void activationGrad(const RowWorkSizes& sizes, const std::vector<HostRows*>& in, double* grad,
                    double* weightGrad) {
  ops::ActivationGradArgs args{};
  args.actGrad = in[0]->elements<BFloat16>();
  args.ldActGrad = in[0]->leading();
  args.gateUp = in[1]->elements<BFloat16>();
  args.ldGateUp = in[1]->leading();
  args.rowWeight = sizes.hasWeights ? in[2]->elements<float>() : nullptr;
  args.rows = sizes.rows;
  args.inter = sizes.columns;
  args.kind = sizes.kind;
  args.limit = kActivationLimit;
  ops::activationGradReference(args, grad, weightGrad);
}

void activation(const RowWorkSizes& sizes, HostRows& in, double* result) {
  ops::ActivationArgs args{};
  args.gateUp = in.elements<BFloat16>();
  args.ldGateUp = in.leading();
  args.rows = sizes.rows;
  args.inter = sizes.columns;
  args.kind = sizes.kind;
  args.limit = kActivationLimit;
  ops::activationReference(args, result);
}

void weightedAct(const RowWorkSizes& sizes, const std::vector<HostRows*>& in, std::vector<double>& result) {
  activation(sizes, *in[1], result.data());
  for (size_t i = 0; i < result.size() && sizes.hasWeights; ++i)
    result[i] *= in[2]->value(static_cast<int>(i) / sizes.columns, 0);
}

}  // namespace

std::vector<OperandShape> inputsOf(const RowWorkSizes& sizes) {
  const int rows = sizes.rows, columns = sizes.columns, pairs = rows * sizes.topK;
  if (sizes.onlyCopies) return {{1, rows, columns, 1}};
  const int element = sizes.isFp32 ? kFp32 : kBf16;
  const int gathered = sizes.parts * partRowsOf(sizes);
  const int list = sizes.hasWeights ? 1 : 0;
  switch (sizes.op) {
    case RowOp::kWeightedSum:
      return {{element, gathered, columns, 0},
              {kFp32, pairs, list, sizes.topK},
              {element, 1, sizes.hasLast ? columns : 0, 0}};
    case RowOp::kScalarSum:
      return {{kFp32, gathered, 1, 0}};
    case RowOp::kAdd:
      return {{kBf16, rows, columns, 1}, {kBf16, rows, columns, 1}};
    case RowOp::kScale:
      return {{element, rows, columns, 1}, {kFp32, rows, list, 1}};
    case RowOp::kColumnSum:
      return {{kBf16, rows, columns, 1}, {kFp32, rows, list, 1}};
    case RowOp::kRowDot:
      return {{kBf16, rows, columns, 1}, {kBf16, 1, columns, 0}, {kFp32, rows, list, 1}};
    case RowOp::kActivation:
      return {{kBf16, rows, inputColumns(sizes), 1}};
    case RowOp::kActivationGrad:
      return {{kBf16, rows, columns, 1}, {kBf16, rows, inputColumns(sizes), 1}, {kFp32, rows, list, 1}};
  }
  return {};
}

std::vector<OperandShape> outputsOf(const RowWorkSizes& sizes) {
  const int rows = sizes.rows, columns = sizes.columns;
  if (sizes.onlyCopies) return {};
  const int element = sizes.isFp32 ? kFp32 : kBf16;
  switch (sizes.op) {
    case RowOp::kWeightedSum:
    case RowOp::kScale:
      return {{element, rows, columns, 1}};
    case RowOp::kScalarSum:
      return {{kFp32, rows * sizes.topK, 1, sizes.topK}};
    case RowOp::kAdd:
    case RowOp::kActivation:
      return {{kBf16, rows, columns, 1}};
    case RowOp::kColumnSum:
      return {{element, 1, columns, 0}};
    case RowOp::kRowDot:
      return {{kFp32, rows, 1, 1}};
    case RowOp::kActivationGrad:
      return {{kBf16, rows, inputColumns(sizes), 1},
              {kFp32, rows, sizes.hasLast ? 1 : 0, 1},
              {kBf16, rows, sizes.givesAct ? columns : 0, 1}};
  }
  return {};
}

std::vector<std::vector<double>> collectResults(const RowWorkSizes& sizes,
                                                const std::vector<HostRows*>& inputs,
                                                const std::vector<int32_t>& positions, HostRows& start) {
  std::vector<std::vector<double>> results;
  for (const OperandShape& out : outputsOf(sizes))
    results.emplace_back(static_cast<size_t>(out.rows) * static_cast<size_t>(out.columns));
  double* const first = results[0].data();
  switch (sizes.op) {
    case RowOp::kWeightedSum:
      if (sizes.isFp32)
        weightedSum<float>(sizes, inputs, positions.data(), first);
      else
        weightedSum<BFloat16>(sizes, inputs, positions.data(), first);
      break;
    case RowOp::kScalarSum:
      scalarSum(sizes, *inputs[0], positions, results[0]);
      break;
    case RowOp::kAdd:
      ops::addReference(
          {inputs[0]->elements<BFloat16>(), inputs[0]->leading(), inputs[1]->elements<BFloat16>(),
           inputs[1]->leading(), nullptr, 0, sizes.rows, sizes.columns},
          first);
      break;
    case RowOp::kScale:
      if (sizes.isFp32)
        scale<float>(sizes, inputs, first);
      else
        scale<BFloat16>(sizes, inputs, first);
      break;
    case RowOp::kColumnSum:
      columnSum(sizes, inputs, start, first);
      break;
    case RowOp::kRowDot:
      ops::rowDotReference(
          {inputs[0]->elements<BFloat16>(), inputs[0]->leading(), inputs[1]->elements<BFloat16>(),
           sizes.hasWeights ? inputs[2]->elements<float>() : nullptr, nullptr, sizes.rows, sizes.columns},
          first);
      break;
    case RowOp::kActivation:
      activation(sizes, *inputs[0], first);
      break;
    case RowOp::kActivationGrad: {
      std::vector<double> weightGrad(static_cast<size_t>(sizes.rows));
      activationGrad(sizes, inputs, first, weightGrad.data());
      if (sizes.hasLast) results[1] = weightGrad;
      if (sizes.givesAct) weightedAct(sizes, inputs, results[2]);
      break;
    }
  }
  return results;
}

std::string firstWrongResult(const RowWorkSizes& sizes, size_t number, const HostRows& found,
                             const std::vector<double>& wanted) {
  const bool isExact = sizes.op != RowOp::kActivation && sizes.op != RowOp::kActivationGrad;
  // the accuracy of an activation in fp32, and of a sum of such over a row
  const double margin = number == 1 ? 0x1p-20 * sizes.columns : 0x1p-20;
  size_t at = 0;
  for (int r = 0; r < found.rows(); ++r)
    for (int c = 0; c < found.columns(); ++c, ++at) {
      const auto narrow = static_cast<float>(wanted[at]);
      const double rounded = found.elementBytes() == kFp32 ? narrow : toFloat(toBFloat16(narrow));
      const double value = found.value(r, c);
      const double relative = number == 0 ? 0x1p-8 : number == 1 ? 0x1p-20 : 0x1p-7;  // act is rounded twice
      const bool isRight = isExact ? value == rounded
                                   : std::abs(value - wanted[at]) <= std::abs(wanted[at]) * relative + margin;
      if (!isRight)
        return fmt::format("op {}: result {} [{}, {}] is {}, expected {}", static_cast<int>(sizes.op), number,
                           r, c, value, wanted[at]);
    }
  return found.hasKeptGaps()
             ? ""
             : fmt::format("op {}: something was written outside of its result", static_cast<int>(sizes.op));
}

}  // namespace sluice::gpu
