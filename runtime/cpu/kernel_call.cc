#include <algorithm>
#include <utility>

#include "runtime/cpu/cpu_step.h"
#include "runtime/cpu/operands.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

// Rows of another rank's buffer, from `row` on: written in place if this process can access them, else
// gathered in scratch memory and put by send(), in one piece if there are no gaps between them.
class RemoteRows {
 public:
  RemoteRows(const Step& step, BufferId buffer, int peer, int64_t row, int64_t rows, std::byte* scratch)
      : step_(step),
        address_(step.at(buffer)),
        peer_(peer),
        rows_(rows),
        rowBytes_(rowBytes(step.program().at(buffer))),
        offset_(address_.offset + row * address_.stride) {
    std::byte* direct = step.transport->direct(peer, address_.handle);
    staged_ = direct == nullptr;
    data_ = staged_ ? scratch : direct + offset_;
  }

  std::byte* data() const { return data_; }
  int64_t stride() const { return staged_ ? rowBytes_ : address_.stride; }
  void send() const {
    if (!staged_) return;
    if (rowBytes_ == address_.stride) return put(0, rows_ * rowBytes_);
    for (int64_t row = 0; row < rows_; ++row) put(row, rowBytes_);
  }

 private:
  void put(int64_t row, int64_t bytes) const {
    step_.transport->put(peer_, address_.handle, offset_ + row * address_.stride, data_ + row * rowBytes_,
                         bytes);
  }

  const Step& step_;
  const BufferAddress& address_;
  const int peer_;
  const int64_t rows_;
  const int64_t rowBytes_;
  const int64_t offset_;
  bool staged_ = false;
  std::byte* data_ = nullptr;
};

// Gathers rows of `from`, `stride` bytes apart, into the peer's `to` from `row` on: rows index / divisor, or
// consecutive rows without an index.
void sendRows(const CpuStep& step, const Piece& piece, BufferId to, int64_t row, const std::byte* from,
              int64_t stride, const int32_t* index, int32_t divisor, std::byte* scratch) {
  const RemoteRows target(step, to, piece.peer, row, piece.rows, scratch);
  step.kernels().gatherRows({.src = from,
                             .srcStride = stride,
                             .index = index,
                             .divisor = divisor,
                             .dst = target.data(),
                             .dstStride = target.stride(),
                             .bytes = rowBytes(step.program().at(to)),
                             .rows = piece.rows});
  target.send();
}

void dispatch(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Piece& piece = step.tables->sends[task.slot];
  const Operands& ids = step.operands(task);
  const int32_t* const pairs = step.tables->pairOf.data() + piece.pair;
  if (ids.rows) {
    const BufferAddress& tokens = step.at(ids.tokens);
    sendRows(step, piece, ids.rows, piece.row, tokens.data, tokens.stride, pairs, step.program().topK,
             scratch);
  }
  if (ids.rowWeights) {
    const std::byte* weights = step.at(ids.weights).data;  // [T,K]: one float per pair
    sendRows(step, piece, ids.rowWeights, piece.row, weights, sizeof(float), pairs, 1, scratch);
  }
  if (ids.rowScales) {
    const BufferAddress& scales = step.at(ids.tokenScales);
    sendRows(step, piece, ids.rowScales, piece.row, scales.data, scales.stride, pairs, step.program().topK,
             scratch);
  }
}

void combineReturn(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Piece& piece = step.tables->returns[task.slot];
  const Operands& ids = step.operands(task);
  for (const auto& [from, to] : {std::pair{ids.rows, ids.returned}, {ids.rowScalars, ids.returnedScalars}}) {
    if (!to) continue;
    const BufferAddress& source = step.at(from);
    sendRows(step, piece, to, piece.pair, elements<std::byte>(source, piece.row), source.stride, nullptr, 1,
             scratch);
  }
}

void activation(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& in = step.at(ids.gateUp);
  const BufferAddress& out = step.at(ids.act);
  step.kernels().activation({.gateUp = elements<BFloat16>(in, range.begin),
                             .ldGateUp = leading<BFloat16>(in),
                             .act = elements<BFloat16>(out, range.begin),
                             .ldAct = leading<BFloat16>(out),
                             .rows = range.rows,
                             .inter = family.tiling.n,
                             .kind = family.tiling.activation,
                             .limit = toFloat(family.tiling.limit)});
}

void activationGrad(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& grad = step.at(ids.actGrad);
  const BufferAddress& gateUp = step.at(ids.gateUp);
  const BufferAddress& out = step.at(ids.gateUpGrad);
  step.kernels().activationGrad({.actGrad = elements<BFloat16>(grad, range.begin),
                                 .ldActGrad = leading<BFloat16>(grad),
                                 .gateUp = elements<BFloat16>(gateUp, range.begin),
                                 .ldGateUp = leading<BFloat16>(gateUp),
                                 .rowWeight = optionalFloats(step, ids.rowWeights, range.begin),
                                 .gateUpGrad = elements<BFloat16>(out, range.begin),
                                 .ldGateUpGrad = leading<BFloat16>(out),
                                 .rowWeightGrad = optionalFloats(step, ids.rowWeightGrad, range.begin),
                                 .rows = range.rows,
                                 .inter = family.tiling.n,
                                 .kind = family.tiling.activation,
                                 .limit = toFloat(family.tiling.limit),
                                 .weightedAct = optionalResultAt(step, ids.weightedAct, range.begin, 0)});
}

void add(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& a = step.at(ids.a);
  const BufferAddress& b = step.at(ids.b);
  const BufferAddress& c = step.at(ids.c);
  step.kernels().add({.a = elements<BFloat16>(a, range.begin),
                      .lda = leading<BFloat16>(a),
                      .b = elements<BFloat16>(b, range.begin),
                      .ldb = leading<BFloat16>(b),
                      .c = elements<BFloat16>(c, range.begin),
                      .ldc = leading<BFloat16>(c),
                      .rows = range.rows,
                      .n = family.tiling.n});
}

bool isF32(const Step& step, BufferId buffer) { return step.program().at(buffer).type == DType::kF32; }

template <class T>
void scaleWith(void (*kernel)(const ops::ScaleOf<T>&), const CpuStep& step, const Family& family,
               const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& a = step.at(ids.a);
  const BufferAddress& c = step.at(ids.c);
  kernel({.a = elements<T>(a, range.begin),
          .lda = leading<T>(a),
          .c = elements<T>(c, range.begin),
          .ldc = leading<T>(c),
          .rows = range.rows,
          .n = family.tiling.n,
          .alpha = effectiveAlpha(family.tiling),
          .rowWeight = optionalFloats(step, ids.rowWeights, range.begin)});
}

void scale(const CpuStep& step, const Family& family, const Task& task) {
  if (isF32(step, step.operands(task).a)) return scaleWith(step.kernels().scaleF32, step, family, task);
  scaleWith(step.kernels().scale, step, family, task);
}

void columnSum(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const TileRange columns = findTile(family.op, family.tiling, task.tile).n;
  const BufferAddress& a = step.at(ids.a);
  const ops::Result sums{elements<std::byte>(step.at(ids.c), 0), family.tiling.n,
                         step.program().at(ids.c).type};
  step.kernels().columnSum({.a = elements<BFloat16>(a, range.begin) + columns.begin,
                            .lda = leading<BFloat16>(a),
                            .scale = optionalFloats(step, ids.rowWeights, range.begin),
                            .c = sums.from(range.expert, columns.begin),
                            .rows = range.rows,
                            .n = columns.length(),
                            .accumulate = accumulates(family)});
}

void rowDot(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& a = step.at(ids.a);
  const BFloat16* const b = elements<BFloat16>(step.at(ids.b), 0) + int64_t{range.expert} * family.tiling.n;
  // of whole operands each rank of a group has the same product
  const bool counts = step.program().at(ids.a).sharding != Sharding::kWhole || countsOnce(step, ids.c);
  step.kernels().rowDot({.a = elements<BFloat16>(a, range.begin),
                         .lda = leading<BFloat16>(a),
                         .b = b,
                         .addend = optionalFloats(step, ids.addend, range.begin),
                         .c = optionalFloats(step, ids.c, range.begin),
                         .rows = range.rows,
                         .n = counts ? family.tiling.n : 0});
}

void quantize(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& a = step.at(ids.a);
  const BufferAddress& codes = step.at(ids.codes);
  step.kernels().quantize({.a = elements<BFloat16>(a, range.begin),
                           .lda = leading<BFloat16>(a),
                           .codes = elements<int8_t>(codes, range.begin),
                           .ldCodes = leading<int8_t>(codes),
                           .scale = optionalFloats(step, ids.codeScales, range.begin),
                           .rows = range.rows,
                           .n = family.tiling.n,
                           .columnScale = optionalFloats(step, ids.columnScale, range.expert)});
}

// `position` points to the positions of the range's first token.
template <class T>
void sumWith(void (*kernel)(const ops::WeightedSumOf<T>&), const CpuStep& step, const Task& task,
             const RowRange& range, const int32_t* position) {
  const Operands& ids = step.operands(task);
  const BufferAddress& source = step.at(ids.returned);
  const BufferAddress& y = step.at(ids.tokens);
  kernel({.src = elements<T>(source, 0),
          .ldSrc = leading<T>(source),
          .position = position,
          .weight = optionalFloats(step, ids.weights, range.begin),
          .y = elements<T>(y, range.begin),
          .ldY = leading<T>(y),
          .tokens = range.rows,
          .topK = step.program().topK,
          .n = step.program().at(task.family).tiling.n,
          .parts = step.program().mesh.tp,
          .partRows = step.tables->pairs,
          .bias = findBias<T>(step, ids.bias, ids.tokens, 0, 0, 0)});
}

void combineSum(const CpuStep& step, const Task& task) {
  const int32_t topK = step.program().topK;
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const int32_t* position = step.tables->positionOf.data() + int64_t{range.begin} * topK;
  if (isF32(step, ids.returned))
    sumWith(step.kernels().weightedSumF32, step, task, range, position);
  else
    sumWith(step.kernels().weightedSum, step, task, range, position);
  if (!ids.tokenScalars) return;
  const BufferAddress& scalars = step.at(ids.returnedScalars);
  step.kernels().sumScalars({.src = elements<float>(scalars, 0),
                             .position = position,
                             .dst = elements<float>(step.at(ids.tokenScalars), range.begin),
                             .count = int64_t{range.rows} * topK,
                             .parts = step.program().mesh.tp,
                             .partElements = step.tables->pairs});
}

void amax(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const BufferAddress& a = step.at(ids.a);
  step.kernels().amax({.a = elements<BFloat16>(a, range.begin),
                       .lda = leading<BFloat16>(a),
                       .rows = range.rows,
                       .n = family.tiling.n,
                       .amax = elements<float>(step.at(ids.amax), range.expert)});
}

void encode(const CpuStep& step, const Family& family, const Task& task) {
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const TileRange columns = findTile(family.op, family.tiling, task.tile).n;
  const BufferAddress& codes = step.at(ids.codes);
  ops::CodeScalesOf<BFloat16> scales;
  ops::RowPowersOf<BFloat16> powers;
  if (ids.endScales)
    scales =
        codeScalesAt<BFloat16>(step, ids.codeScales, ids.endScales, range, family.tiling.n, columns.begin);
  else
    powers = rowPowersAt<BFloat16>(step, ids.codeScales, range.begin, columns.begin);
  step.kernels().encode(
      {.a = matrixAt<ops::Operand>(step, ids.a, range.begin).from(0, columns.begin),
       .codes = elements<uint8_t>(codes, range.begin) + columns.begin,
       .ldCodes = leading<uint8_t>(codes),
       .scales = scales,
       .rows = range.rows,
       .n = columns.length(),
       .round = family.tiling.roundA,
       .amax = amaxAt(step, ids.amaxA, range.expert),
       .powers = powers,
       .powersA = rowPowersAt<const BFloat16>(step, ids.scaleA, range.begin, columns.begin)});
}

// Runs the kernel of the task, without its signals.
void callKernel(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  switch (family.op) {
    case OpKind::kDispatch:
      return dispatch(step, task, scratch);
    case OpKind::kGmm:
      return callGmm(step, task, scratch);
    case OpKind::kGmmWeightGrad:
      return callGmmWeightGrad(step, task, scratch);
    case OpKind::kActivation:
      return activation(step, family, task);
    case OpKind::kActivationGrad:
      return activationGrad(step, family, task);
    case OpKind::kCombineReturn:
      return combineReturn(step, task, scratch);
    case OpKind::kCombineSum:
      return combineSum(step, task);
    case OpKind::kAdd:
      return add(step, family, task);
    case OpKind::kScale:
      return scale(step, family, task);
    case OpKind::kGmmActivation:
      return callGmmActivation(step, task, scratch);
    case OpKind::kGmmActivationGrad:
      return callGmmActivationGrad(step, task, scratch);
    case OpKind::kColumnSum:
      return columnSum(step, family, task);
    case OpKind::kRowDot:
      return rowDot(step, family, task);
    case OpKind::kQuantize:
      return quantize(step, family, task);
    case OpKind::kAmax:
      return amax(step, family, task);
    case OpKind::kEncode:
      return encode(step, family, task);
  }
}

}  // namespace

size_t countScratchBytes(const Plan& plan, const ops::KernelSet& kernels) {
  const TaskProgram& p = plan.program();
  size_t most = 0;
  for (const Family& family : p.families) {
    size_t bytes = productScratchBytes(p, kernels, family, p.at(family.space).slotSize);
    // pieces are gathered here if the receiver's memory cannot be written directly
    if (isRemote(p.at(family.space).kind))
      for (BufferId id : family.writes)
        if (id) bytes = std::max<size_t>(bytes, plan.routingShape().slotRows * rowBytes(p.at(id)));
    most = std::max(most, bytes);
  }
  return most;
}

void runTask(const CpuStep& step, const Task& task, std::byte* scratch) {
  if (hasKernelToRun(step, task)) callKernel(step, task, scratch);
  const SymmetricHandle words = step.events->words().handle;
  forSignals(step, task,
             [&](int rank, size_t word, uint64_t n) { step.transport->signal(rank, words, word, n); });
}

}  // namespace sluice
