// Copies of rows and work on rows, as runtime/gpu/translate_rows.cc makes them.
#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "tests/ops/testing/model_kernels.h"
#include "tests/ops/testing/model_run.h"

namespace sluice::ops::sm90_model {
namespace {

// A task of work on rows, whose operands are added in their order.
struct RowTask {
  ModelRun run = {};
  gpu::RowWork work = {};
  int ins = 0, outs = 0;

  RowTask(gpu::RowOp op, int64_t rows, int32_t columns) {
    work.op = op;
    work.rows = static_cast<int32_t>(rows);
    work.columns = columns;
    work.topK = work.parts = 1;
  }

  template <class T>
  void addIn(const T* data, int64_t ld, int64_t rows, int64_t columns) {
    if (data != nullptr) run.allow(data, ld, rows, columns);
    work.in[ins] = reinterpret_cast<const std::byte*>(data);
    work.inPitch[ins++] = ld * int64_t{sizeof(T)};
  }
  template <class T>
  void addOut(T* data, int64_t ld, int64_t rows, int64_t columns) {
    if (data != nullptr) run.allow(data, ld, rows, columns);
    work.out[outs] = reinterpret_cast<std::byte*>(data);
    work.outPitch[outs++] = ld * int64_t{sizeof(T)};
  }
  void addPositions(const int32_t* positions, int64_t count) {
    run.allow(positions, count, 1, count);
    work.position = positions;
  }

  void execute() {
    run.add(work);
    run.run();
  }
};

template <class T>
void sumWeighted(const WeightedSumOf<T>& args) {
  RowTask task(gpu::RowOp::kWeightedSum, args.tokens, args.n);
  task.work.isFp32 = std::is_same_v<T, float>;
  task.work.topK = args.topK;
  task.work.parts = args.parts;
  task.work.partRows = args.partRows;
  const int64_t pairs = int64_t{args.tokens} * args.topK;
  int64_t rows = 0;  // of the source, as far as positions reach
  for (int64_t pair = 0; pair < pairs; ++pair)
    if (args.position[pair] >= 0)
      rows = std::max(rows, args.position[pair] + 1 + (args.parts - 1) * args.partRows);
  task.addIn(args.src, args.ldSrc, rows, args.n);
  task.addIn(args.weight, pairs, 1, pairs);
  task.addIn(args.bias, args.n, 1, args.n);
  task.addOut(args.y, args.ldY, args.tokens, args.n);
  task.addPositions(args.position, pairs);
  task.execute();
}

template <class T>
void scaleRows(const ScaleOf<T>& args) {
  RowTask task(gpu::RowOp::kScale, args.rows, args.n);
  task.work.isFp32 = std::is_same_v<T, float>;
  task.work.alpha = args.alpha;
  task.addIn(args.a, args.lda, args.rows, args.n);
  task.addIn(args.rowWeight, args.rows, 1, args.rows);
  task.addOut(args.c, args.ldc, args.rows, args.n);
  task.execute();
}

// Up lies next to gate: on a GPU, tasks have whole rows.
void checkUpColumn(int32_t column, int32_t inter) {
  if (column != 0 && column != inter)
    throw std::runtime_error("an activation of some columns does not run on a GPU");
}

RowTask activationTask(gpu::RowOp op, const auto& args) {
  checkUpColumn(args.upColumn, args.inter);
  RowTask task(op, args.rows, args.inter);
  task.work.activation = static_cast<decltype(task.work.activation)>(args.kind);
  task.work.limit = args.limit;
  return task;
}

int32_t gateUpColumns(const auto& args) { return findInfo(args.kind).inputs * args.inter; }

}  // namespace

void activation(const ActivationArgs& args) {
  RowTask task = activationTask(gpu::RowOp::kActivation, args);
  task.addIn(args.gateUp, args.ldGateUp, args.rows, gateUpColumns(args));
  task.addOut(args.act, args.ldAct, args.rows, args.inter);
  task.execute();
}

void activationGrad(const ActivationGradArgs& args) {
  checkUpColumn(args.upGradColumn, args.inter);
  RowTask task = activationTask(gpu::RowOp::kActivationGrad, args);
  task.addIn(args.actGrad, args.ldActGrad, args.rows, args.inter);
  task.addIn(args.gateUp, args.ldGateUp, args.rows, gateUpColumns(args));
  task.addIn(args.rowWeight, args.rows, 1, args.rows);
  task.addOut(args.gateUpGrad, args.ldGateUpGrad, args.rows, gateUpColumns(args));
  task.addOut(args.rowWeightGrad, args.rows, 1, args.rows);
  task.addOut(static_cast<BFloat16*>(args.weightedAct.data), args.weightedAct.ld, args.rows, args.inter);
  task.execute();
}

void gatherRows(const GatherRowsArgs& args) {
  ModelRun run;
  int64_t rows = args.index == nullptr ? args.rows : 0;  // of the source, as far as the index reaches
  for (int32_t row = 0; row < args.rows && args.index != nullptr; ++row)
    if (args.index[row] >= 0) rows = std::max<int64_t>(rows, args.index[row] / args.divisor + 1);
  run.allow(args.src, args.srcStride, rows, args.bytes);
  if (args.index != nullptr) run.allow(args.index, args.rows, 1, args.rows);
  run.allow(args.dst, args.dstStride, args.rows, args.bytes);
  run.add(gpu::RowCopy{.from = args.src,
                       .fromPitch = args.srcStride,
                       .index = args.index,
                       .divisor = args.divisor,
                       .to = args.dst,
                       .toPitch = args.dstStride,
                       .bytes = static_cast<int32_t>(args.bytes),
                       .rows = args.rows});
  run.run();
}

void weightedSum(const WeightedSumArgs& args) { sumWeighted(args); }
void weightedSumF32(const WeightedSumF32Args& args) { sumWeighted(args); }

void sumScalars(const SumScalarsArgs& args) {
  RowTask task(gpu::RowOp::kScalarSum, args.count, 1);
  task.work.parts = args.parts;
  task.work.partRows = args.partElements;
  int64_t floats = 0;  // of the source, as far as positions reach
  for (int64_t i = 0; i < args.count; ++i)
    if (args.position[i] >= 0)
      floats = std::max(floats, args.position[i] + 1 + (args.parts - 1) * args.partElements);
  task.addIn(args.src, floats, 1, floats);
  task.addOut(args.dst, args.count, 1, args.count);
  task.addPositions(args.position, args.count);
  task.execute();
}

void add(const AddArgs& args) {
  RowTask task(gpu::RowOp::kAdd, args.rows, args.n);
  task.addIn(args.a, args.lda, args.rows, args.n);
  task.addIn(args.b, args.ldb, args.rows, args.n);
  task.addOut(args.c, args.ldc, args.rows, args.n);
  task.execute();
}

void scale(const ScaleArgs& args) { scaleRows(args); }
void scaleF32(const ScaleF32Args& args) { scaleRows(args); }

void columnSum(const ColumnSumArgs& args) {
  RowTask task(gpu::RowOp::kColumnSum, args.rows, args.n);
  task.work.isFp32 = args.c.type == DType::kF32;
  task.work.accumulates = args.accumulate;
  task.addIn(args.a, args.lda, args.rows, args.n);
  task.addIn(args.scale, args.rows, 1, args.rows);
  if (task.work.isFp32)
    task.addOut(static_cast<float*>(args.c.data), args.n, 1, args.n);
  else
    task.addOut(static_cast<BFloat16*>(args.c.data), args.n, 1, args.n);
  task.execute();
}

void rowDot(const RowDotArgs& args) {
  RowTask task(gpu::RowOp::kRowDot, args.rows, args.n);
  task.addIn(args.a, args.lda, args.rows, args.n);
  task.addIn(args.b, args.n, 1, args.n);
  task.addIn(args.addend, args.rows, 1, args.rows);
  task.addOut(args.c, args.rows, 1, args.rows);
  task.execute();
}

}  // namespace sluice::ops::sm90_model
