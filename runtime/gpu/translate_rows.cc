// Copies of rows, and work on rows besides products.
#include <algorithm>
#include <utility>

#include "runtime/exec/step.h"
#include "runtime/gpu/translator.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }

}  // namespace

// Rows of the piece, to the peer's `to` from `row` on.
void Translator::addCopy(const Piece& piece, BufferId to, int64_t row, gpu::RowCopy copy) {
  const BufferAddress& target = step_.at(to);
  copy.to = backend_.peer(piece.peer, target.handle) + target.offset + row * target.stride;
  copy.toPitch = target.stride;
  copy.bytes = static_cast<int32_t>(rowBytes(step_.program().at(to)));
  copy.rows = piece.rows;
  add(gpu::TaskKind::kRowCopy, tables_.rowCopies, copy);
}

void Translator::addSends(const Task& task) {
  const Piece& piece = step_.tables->sends[static_cast<size_t>(task.slot)];
  const int32_t* const pairs = staged_.pairOf() + piece.pair;
  const Operands& ids = step_.operands(task);
  for (const auto& [from, to] :
       {std::pair{ids.tokens, ids.rows}, {ids.weights, ids.rowWeights}, {ids.tokenScales, ids.rowScales}}) {
    if (!to) continue;
    const BufferAddress& source = step_.at(from);
    // weights [T, K] have a number for each pair, the others a row for each token
    const bool isOfPairs = from == ids.weights;
    addCopy(piece, to, piece.row,
            {.from = source.data,
             .fromPitch = isOfPairs ? int64_t{sizeof(float)} : source.stride,
             .index = pairs,
             .divisor = isOfPairs ? 1 : step_.program().topK});
  }
}

void Translator::addReturns(const Task& task) {
  const Piece& piece = step_.tables->returns[static_cast<size_t>(task.slot)];
  const Operands& ids = step_.operands(task);
  for (const auto& [from, to] : {std::pair{ids.rows, ids.returned}, {ids.rowScalars, ids.returnedScalars}}) {
    if (!to) continue;
    const BufferAddress& source = step_.at(from);
    addCopy(piece, to, piece.pair,
            {.from = elements<std::byte>(source, piece.row), .fromPitch = source.stride, .divisor = 1});
  }
}

void Translator::addSums(const Family& family, const Task& task) {
  const RowRange range = findRows(step_, task);
  const int32_t topK = step_.program().topK;
  const Operands& ids = step_.operands(task);
  const BufferAddress& source = step_.at(ids.returned);
  const BufferAddress& y = step_.at(ids.tokens);
  gpu::RowWork work{};
  work.op = gpu::RowOp::kWeightedSum;
  work.isFp32 = step_.program().at(ids.returned).type == DType::kF32;
  work.in[0] = source.data;
  work.inPitch[0] = source.stride;
  work.in[1] = bytes(optionalFloats(step_, ids.weights, range.begin));
  work.in[2] = bytes(findBias(step_, ids.bias, ids.tokens, 0, 0, 0));
  work.out[0] = elements<std::byte>(y, range.begin);
  work.outPitch[0] = y.stride;
  work.position = staged_.positionOf() + int64_t{range.begin} * topK;
  work.rows = range.rows;
  work.columns = family.tiling.n;
  work.topK = topK;
  work.parts = step_.program().mesh.tp;
  work.partRows = step_.tables->pairs;
  add(gpu::TaskKind::kRowWork, tables_.rowWorks, work);
  if (!ids.tokenScalars) return;
  work.op = gpu::RowOp::kScalarSum;
  work.in[0] = step_.at(ids.returnedScalars).data;
  work.in[1] = work.in[2] = nullptr;
  work.out[0] = elements<std::byte>(step_.at(ids.tokenScalars), range.begin);
  work.columns = 1;
  add(gpu::TaskKind::kRowWork, tables_.rowWorks, work);
}

void Translator::addRowWork(const Family& family, const Task& task) {
  const RowRange range = findRows(step_, task);
  gpu::RowWork work{};
  work.op = *findRowOp(family.op);
  work.activation = family.tiling.activation;
  work.limit = toFloat(family.tiling.limit);
  work.alpha = effectiveAlpha(family.tiling);
  const Operands& ids = step_.operands(task);
  work.isFp32 = ids.c && step_.program().at(ids.c).type == DType::kF32;
  work.accumulates = accumulates(family);
  work.rows = range.rows;
  work.columns = family.tiling.n;
  for (size_t i = 0; i < family.reads.size(); ++i) {
    if (!family.reads[i]) continue;
    work.in[i] = elements<std::byte>(step_.at(family.reads[i]), range.begin);
    work.inPitch[i] = step_.at(family.reads[i]).stride;
  }
  for (size_t i = 0; i < family.writes.size(); ++i) {
    if (!family.writes[i]) continue;
    work.out[i] = elements<std::byte>(step_.at(family.writes[i]), range.begin);
    work.outPitch[i] = step_.at(family.writes[i]).stride;
  }
  if (work.op == gpu::RowOp::kColumnSum) {
    const TileRange columns = findTile(family.op, family.tiling, task.tile).n;
    const int64_t elementBytes = work.isFp32 ? 4 : 2;
    work.in[0] += columns.begin * 2;
    work.out[0] = elements<std::byte>(step_.at(ids.c), 0) +
                  (int64_t{range.expert} * family.tiling.n + columns.begin) * elementBytes;
    work.columns = columns.length();
  }
  if (work.op == gpu::RowOp::kRowDot) {
    work.in[1] = elements<std::byte>(step_.at(ids.b), 0) + int64_t{range.expert} * family.tiling.n * 2;
    // of whole operands each rank of a group has the same product
    const bool counts = step_.program().at(ids.a).sharding != Sharding::kWhole || countsOnce(step_, ids.c);
    if (!counts) work.columns = 0;
  }
  add(gpu::TaskKind::kRowWork, tables_.rowWorks, work);
}

// For a task whose work is left out, or that has none.
void Translator::addNothing(bool isRemote) {
  if (isRemote)
    add(gpu::TaskKind::kRowCopy, tables_.rowCopies, gpu::RowCopy{.divisor = 1});
  else
    add(gpu::TaskKind::kRowWork, tables_.rowWorks, gpu::RowWork{.op = gpu::RowOp::kAdd});
}

void Translator::add(const Task& task) {
  const Family& family = step_.program().at(task.family);
  const size_t before = tables_.records.size();
  if (hasKernelToRun(step_, task)) {
    const OpInfo& op = findInfo(family.op);
    if (op.isSum())
      addWeightGrads(family, task);
    else if (op.multiplies())
      addProducts(family, task);
    else if (family.op == OpKind::kDispatch)
      addSends(task);
    else if (family.op == OpKind::kCombineReturn)
      addReturns(task);
    else if (family.op == OpKind::kCombineSum)
      addSums(family, task);
    else
      addRowWork(family, task);
  }
  if (tables_.records.size() == before) addNothing(isRemote(step_.plan->at(task.family).space));
}

}  // namespace sluice
