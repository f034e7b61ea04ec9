// Products and weight gradients.
#include <algorithm>

#include "runtime/exec/step.h"
#include "runtime/gpu/translator.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

using gpu::kStoredRows;
using gpu::kTileRows;

gpu::ProductKind chooseProductKind(VectorWork work) {
  switch (work) {
    case VectorWork::kActivation:
      return gpu::ProductKind::kActivation;
    case VectorWork::kActivationGrad:
      return gpu::ProductKind::kActivationGrad;
    default:
      return gpu::ProductKind::kPlain;
  }
}

gpu::GradForm findForm(const Step& step, const Family& family) {
  if (step.program().at(findBuffer(family, &Operands::c)).type == DType::kBF16)
    return accumulates(family) ? gpu::GradForm::kBf16Added : gpu::GradForm::kBf16;
  return accumulates(family) ? gpu::GradForm::kFp32Added : gpu::GradForm::kFp32;
}

}  // namespace

void Translator::addProducts(const Family& family, const Task& task) {
  const Tiling& tiling = family.tiling;
  const RowRange range = findRows(step_, task);
  const TileRange columns = findTile(family.op, tiling, task.tile).n;
  const bool transposed = isTransposed(family.op, tiling);
  const int32_t parts = weightParts(family.op, tiling);

  const Operands& ids = step_.operands(task);
  gpu::Product product{};
  product.kind = chooseProductKind(findInfo(family.op).vector);
  product.a = matrices_.add(ids.a, kTileRows);
  if (isGathered(step_.program(), family, &Operands::a)) {
    product.rowIndex = staged_.pairOf();
    product.divisor = step_.program().topK;
  }
  product.weight = matrices_.add(ids.b, transposed ? columns_ / 2 : 64);
  product.weightMajor = transposed ? gpu::Major::kK : gpu::Major::kMn;
  const BufferId result = product.kind == gpu::ProductKind::kPlain        ? ids.c
                          : product.kind == gpu::ProductKind::kActivation ? ids.act
                                                                          : ids.gateUpGrad;
  product.out = matrices_.add(result, kStoredRows);
  product.expert = range.expert;
  product.k = tiling.k;
  product.alpha = effectiveAlpha(tiling);
  product.activation = tiling.activation;
  product.limit = toFloat(tiling.limit);
  int32_t width = columns_;
  if (product.kind == gpu::ProductKind::kActivationGrad) {
    product.gateUp = matrices_.add(ids.gateUp, kStoredRows);
    product.rowWeight = optionalFloats(step_, ids.rowWeights, 0);
    product.rowWeightGrad = optionalFloats(step_, ids.rowWeightGrad, 0);
    if (ids.weightedAct) product.weightedAct = matrices_.add(ids.weightedAct, kStoredRows);
  } else {
    product.bias = reinterpret_cast<const uint16_t*>(
        findBias(step_, ids.bias, result, range.expert, int64_t{parts} * tiling.n, 0));
  }
  if (product.kind == gpu::ProductKind::kActivation) {
    if (ids.gateUp) product.gateUp = matrices_.add(ids.gateUp, kStoredRows);
    width = columns_ / parts;
  }
  // columns last: what the tiles of a row add up in order is in the same threads
  for (int32_t row = 0; row < range.rows; row += kTileRows)
    for (int32_t column = columns.begin; column < columns.end; column += width) {
      product.firstRow = range.begin + row;
      product.rows = std::min(range.rows - row, kTileRows);
      product.firstColumn = column;
      product.endColumn = std::min(column + width, columns.end);
      product.addsRowWeightGrad = column > columns.begin;
      add(gpu::TaskKind::kProduct, tables_.products, product);
    }
}

void Translator::addWeightGrads(const Family& family, const Task& task) {
  const Tiling& tiling = family.tiling;
  const RowRange range = findRows(step_, task);
  const auto [m, n] = findTile(family.op, tiling, task.tile);
  gpu::WeightGrad grad{};
  grad.divisor = step_.program().topK;
  const Operands& ids = step_.operands(task);
  const auto factor = [&](OperandName operand, const int32_t*& index) {
    const BufferId buffer = ids.*operand;
    if (!isGathered(step_.program(), family, operand)) return matrices_.add(buffer, range);
    index = staged_.pairOf() + range.begin;
    return matrices_.add(buffer, kStoredRows);
  };
  grad.a = factor(&Operands::a, grad.aIndex);
  grad.dy = factor(&Operands::b, grad.dyIndex);
  grad.out = matrices_.add(ids.c, kStoredRows);
  grad.form = findForm(step_, family);
  grad.rows = range.rows;
  grad.expert = range.expert;
  grad.alpha = effectiveAlpha(tiling);
  for (int32_t row = m.begin; row < m.end; row += kTileRows)
    for (int32_t column = n.begin; column < n.end; column += columns_) {
      grad.firstRow = row;
      grad.endRow = std::min(row + kTileRows, m.end);
      grad.firstColumn = column;
      grad.endColumn = std::min(column + columns_, n.end);
      add(gpu::TaskKind::kWeightGrad, tables_.weightGrads, grad);
    }
}

}  // namespace sluice
