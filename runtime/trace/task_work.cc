#include "runtime/trace/task_work.h"

#include <span>
#include <string_view>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

// Bytes of a number.
double elementBytes(const TaskProgram& program, BufferId id) { return numberBytes(program.at(id).type); }

// Bytes per index of the first dimension; 0 if the operand is absent.
double rowBytes(const TaskProgram& program, BufferId id) {
  if (!id) return 0;
  double bytes = elementBytes(program, id);
  for (size_t d = 1; d < program.at(id).shape.size(); ++d)
    bytes *= static_cast<double>(program.at(id).shape[d].size);
  return bytes;
}

// Whether the operand has rows, tokens or pairs; weights and biases do not.
bool isByRow(const OperandInfo& operand) {
  return !operand.shape.empty() &&
         std::string_view("TRPX").find(operand.shape.front()) != std::string_view::npos;
}

double rowBytes(const TaskProgram& program, const std::vector<BufferId>& ids,
                std::span<const OperandInfo> operands) {
  double bytes = 0;
  for (size_t i = 0; i < ids.size(); ++i)
    if (isByRow(operands[i])) bytes += rowBytes(program, ids[i]);
  return bytes;
}

TaskWork weightGradWork(const TaskProgram& program, const Family& family, int32_t tile, double rows) {
  const auto [mRange, nRange] = findTile(family.op, family.tiling, tile);
  const double m = mRange.length(), n = nRange.length();
  const Operands ids = findOperands(family);
  const double ofA = elementBytes(program, ids.a), ofB = elementBytes(program, ids.b);
  const double passes = accumulates(family) ? 2 : 1;
  return {2 * rows * m * n, rows * (ofA * m + ofB * n + rowBytes(program, ids.rowWeights)) +
                                passes * elementBytes(program, ids.c) * m * n};
}

// Bytes per row for `columns` of the n columns: of the matrices that the product writes, and of those that it
// reads besides its factors.
double matrixBytes(const TaskProgram& program, const Family& family, double columns) {
  double bytes = 0;
  const auto add = [&](BufferId id, const OperandInfo& operand) {
    if (id && !operand.isFactor && isByRow(operand) && program.at(id).shape.size() == 2)
      bytes += rowBytes(program, id) * columns / family.tiling.n;
  };
  const OpInfo& op = findInfo(family.op);
  for (size_t i = 0; i < family.reads.size(); ++i) add(family.reads[i], op.reads[i]);
  for (size_t i = 0; i < family.writes.size(); ++i) add(family.writes[i], op.writes[i]);
  return bytes;
}

TaskWork columnSumWork(const TaskProgram& program, const Family& family, int32_t tile, double rows) {
  const double columns = findTile(family.op, family.tiling, tile).n.length();
  const double passes = accumulates(family) ? 2 : 1;
  const Operands ids = findOperands(family);
  return {0, rows * (columns * elementBytes(program, ids.a) + rowBytes(program, ids.rowWeights)) +
                 passes * columns * elementBytes(program, ids.c)};
}

TaskWork encodeWork(const TaskProgram& program, const Family& family, int32_t tile, double rows) {
  const double columns = findTile(family.op, family.tiling, tile).n.length();
  const double share = columns / family.tiling.n;
  const OpInfo& op = findInfo(family.op);
  return {0, rows * share *
                 (rowBytes(program, family.reads, op.reads) + rowBytes(program, family.writes, op.writes))};
}

TaskWork productWork(const TaskProgram& program, const Family& family, int32_t tile, double rows) {
  const double columns = findTile(family.op, family.tiling, tile).n.length();
  const double k = family.tiling.k, ofWeight = columns * weightParts(family.op, family.tiling);
  const Operands ids = findOperands(family);
  return {2 * rows * k * ofWeight, rows * k * elementBytes(program, ids.a) +
                                       k * ofWeight * elementBytes(program, ids.b) +
                                       rows * matrixBytes(program, family, columns)};
}

}  // namespace

TaskWork countWork(const TaskProgram& program, FamilyId id, int32_t tile, int64_t rowCount) {
  const Family& family = program.at(id);
  const double rows = static_cast<double>(rowCount);
  const OpInfo& op = findInfo(family.op);
  if (op.multiplies()) return productWork(program, family, tile, rows);
  if (op.isSum()) return weightGradWork(program, family, tile, rows);
  if (op.vector == VectorWork::kColumnSum) return columnSumWork(program, family, tile, rows);
  if (op.vector == VectorWork::kEncode) return encodeWork(program, family, tile, rows);
  if (op.vector == VectorWork::kAmax) return {0, rows * rowBytes(program, findBuffer(family, &Operands::a))};
  const double read = rowBytes(program, family.reads, op.reads),
               written = rowBytes(program, family.writes, op.writes);
  if (op.vector == VectorWork::kNone) return {0, 2 * rows * written};
  if (op.vector == VectorWork::kWeightedSum) {
    const Operands ids = findOperands(family);
    return {0, rows * (program.topK * program.mesh.tp * rowBytes(program, ids.returned) + written +
                       rowBytes(program, ids.weights))};
  }
  return {0, rows * (read + written)};
}

}  // namespace sluice
