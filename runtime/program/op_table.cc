#include "runtime/program/op_table.h"

#include <algorithm>
#include <array>

#include "runtime/base/encoding.h"
#include "runtime/base/rounding.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// The number of columns that have codes.
int64_t codedColumns(const TaskProgram& program, const Family& family) {
  return countColumns(family.tiling, codedFactor(program, family));
}

// The columns of what has rows of codes.
int64_t rowLength(const Family& family) {
  return findInfo(family.op).multiplies() ? family.tiling.k : family.tiling.n;
}

bool hasE4m3(const TaskProgram& program, BufferId id) {
  return id.value < program.buffers.size() && program.at(id).type == DType::kF8_E4M3;
}

Dim makeDim(char letter, const TaskProgram& program, const Family& family, bool dense) {
  const Tiling& tiling = family.tiling;
  switch (letter) {
    case 'T':
      return {Extent::kTokens, 0};
    case 'R':
      return {Extent::kRows, 0};
    case 'P':
      return {Extent::kPairs, 0};
    case 'X':
      return {dense ? Extent::kTokens : Extent::kRows, 0};
    case 'E':
      return program.expertDim();
    case 'K':
      return {Extent::kFixed, program.topK};
    case 'm':
      return {Extent::kFixed, tiling.m};
    case 'k':
      return {Extent::kFixed, tiling.k};
    case 'c':
      return {Extent::kFixed, codedColumns(program, family)};
    case 's':
      return {Extent::kFixed, codedColumns(program, family) / kMxBlock};
    case '1':
      return {Extent::kFixed, 1};
    default:
      return {Extent::kFixed, int64_t{letter == 'i' ? findInfo(tiling.activation).inputs : 1} * tiling.n};
  }
}

}  // namespace

int32_t weightParts(OpKind op, const Tiling& tiling) {
  const OpInfo& info = findInfo(op);
  if (!info.multiplies()) return 0;
  return info.vector == VectorWork::kActivation ? findInfo(tiling.activation).inputs : 1;
}

bool isTransposed(OpKind op, const Tiling& tiling) { return (tiling.flags & findInfo(op).transposed) != 0; }

bool accumulates(const Family& family) { return (family.tiling.flags & findInfo(family.op).accumulate) != 0; }

bool isAccumulated(const TaskProgram& program, BufferId buffer) {
  return std::any_of(program.families.begin(), program.families.end(), [&](const Family& family) {
    return accumulates(family) && findBuffer(family, &Operands::c) == buffer;
  });
}

void trimOperands(Family& family) {
  for (std::vector<BufferId>* ids : {&family.reads, &family.writes})
    while (!ids->empty() && ids->back().none()) ids->pop_back();
}

BufferId bufferAt(const std::vector<BufferId>& ids, size_t position) {
  return position < ids.size() ? ids[position] : BufferId{};
}

Operands findOperands(const Family& family) {
  const OpInfo& op = findInfo(family.op);
  Operands found;
  for (size_t i = 0; i < op.reads.size(); ++i) found.*op.reads[i].id = bufferAt(family.reads, i);
  for (size_t i = 0; i < op.writes.size(); ++i) found.*op.writes[i].id = bufferAt(family.writes, i);
  return found;
}

BufferId findBuffer(const Family& family, OperandName operand) {
  const OpInfo& op = findInfo(family.op);
  for (size_t i = 0; i < op.reads.size(); ++i)
    if (op.reads[i].id == operand) return bufferAt(family.reads, i);
  for (size_t i = 0; i < op.writes.size(); ++i)
    if (op.writes[i].id == operand) return bufferAt(family.writes, i);
  return {};
}

BufferId& operandBuffer(Family& family, OperandName operand) {
  const OpInfo& op = findInfo(family.op);
  const bool isRead = std::ranges::find(op.reads, operand, &OperandInfo::id) != op.reads.end();
  std::vector<BufferId>& ids = isRead ? family.reads : family.writes;
  const std::span<const OperandInfo> operands = isRead ? op.reads : op.writes;
  const auto position = static_cast<size_t>(op.find(operand) - operands.data());
  if (ids.size() <= position) ids.resize(position + 1);
  return ids[position];
}

bool needsWholeRows(const Family& family) {
  const OpInfo& info = findInfo(family.op);
  if (family.op == OpKind::kEncode) return findDomain(family) == Domain::kRows;
  return info.vector == VectorWork::kActivationGrad && info.cut == Cut::kColumns &&
         findBuffer(family, &Operands::rowWeightGrad);
}

bool isGathered(const TaskProgram& program, const Family& family, OperandName operand) {
  const BufferId buffer = findBuffer(family, operand);
  return buffer && findInfo(family.op).find(operand)->inPlace == Extent::kTokens &&
         !findInfo(program.at(family.space).kind).dense &&
         program.at(buffer).shape.front().extent == Extent::kTokens;
}

Domain findDomain(const Family& family) {
  const bool isDown = !findBuffer(family, &Operands::endScales).none();
  return family.op == OpKind::kEncode && !isDown ? Domain::kRows : findInfo(family.op).domain;
}

SpaceKind spaceFor(const Family& family, SpaceKind own) {
  switch (findDomain(family)) {
    case Domain::kSends:
      return SpaceKind::kSends;
    case Domain::kReturns:
      return SpaceKind::kReturns;
    case Domain::kTokens:
      return SpaceKind::kTokens;
    case Domain::kRows:
      return own == SpaceKind::kTokens || own == SpaceKind::kGroups ? own : SpaceKind::kRows;
    case Domain::kSums:
      return findInfo(own).dense ? SpaceKind::kOnce : SpaceKind::kExperts;
  }
  return own;
}

std::vector<Dim> shapeOf(const OperandInfo& operand, const TaskProgram& program, const Family& family) {
  const bool dense = findInfo(program.at(family.space).kind).dense;
  std::vector<Dim> shape;
  for (char letter : operand.shape)
    if (letter != 'E' || !dense) shape.push_back(makeDim(letter, program, family, dense));
  if (operand.scalesRows() && hasRowBlocks(program, family))
    shape.push_back({Extent::kFixed, rowLength(family) / kMxBlock});
  if (operand.isWeight && isTransposed(family.op, family.tiling)) std::swap(shape.back(), shape.end()[-2]);
  return shape;
}

int64_t countTiles(OpKind op, const Tiling& tiling) {
  const Cut cut = findInfo(op).cut;
  if (cut == Cut::kWhole) return 1;
  const int64_t columns = tileCount(tiling.n, tiling.tileN);
  return cut == Cut::kColumns ? columns : columns * tileCount(tiling.m, tiling.tileM);
}

Tile findTile(OpKind op, const Tiling& tiling, int32_t tile) {
  const Cut cut = findInfo(op).cut;
  if (cut == Cut::kWhole) return {{}, {0, tiling.n}};
  if (cut == Cut::kColumns) return {{}, tileRange(tiling.n, tiling.tileN, tile)};
  const int32_t columns = tileCount(tiling.n, tiling.tileN);
  return {tileRange(tiling.m, tiling.tileM, tile / columns),
          tileRange(tiling.n, tiling.tileN, tile % columns)};
}

std::optional<Block> findBlock(const Buffer& weight, const Buffer& scale) {
  const size_t count = weight.shape.size();
  if (count < 2 || scale.shape.size() != count || (count == 3 && scale.shape[0] != weight.shape[0]))
    return {};
  int64_t size[2];
  for (size_t i = 0; i < 2; ++i) {
    const Dim& blocks = scale.shape[count - 2 + i];
    const int64_t whole = weight.shape[count - 2 + i].size * (i == 1 ? codesPerElement(weight.type) : 1);
    const std::optional<int64_t> each = numbersPerScale(weight.type, whole, blocks.size);
    if (blocks.extent != Extent::kFixed || !each) return {};
    size[i] = *each;
  }
  return Block{size[0], size[1]};
}

OperandName scaledRows(OpKind op) {
  for (const OperandInfo& operand : findInfo(op).reads)
    if (operand.scalesRows()) return operand.scales;
  return nullptr;
}

bool hasRowBlocks(const TaskProgram& program, const Family& family) {
  const OperandName rows = scaledRows(family.op);
  return rows != nullptr && hasE4m3(program, findBuffer(family, rows));
}

OperandName codedFactor(const TaskProgram& program, const Family& family) {
  if (!findInfo(family.op).isSum()) return nullptr;
  for (const OperandName factor : kFactors)
    if (hasE4m3(program, findBuffer(family, factor))) return factor;
  return nullptr;
}

int64_t productFlops(OpKind op, const Tiling& tiling) {
  const OpInfo& info = findInfo(op);
  if (info.isSum()) return int64_t{2} * tiling.m * tiling.n;
  return int64_t{2} * weightParts(op, tiling) * tiling.n * tiling.k;
}

int64_t vectorFlops(const Family& family) {
  const Operands operands = findOperands(family);
  const ActivationInfo& activation = findInfo(family.tiling.activation);
  const OpInfo& op = findInfo(family.op);
  const int64_t n = family.tiling.n;
  switch (op.vector) {
    case VectorWork::kActivation:
      return n * activation.flops;
    case VectorWork::kActivationGrad:  // gradients times the weight; the activation times both
      return n * (activation.gradFlops + (operands.rowWeights ? activation.inputs : 0) +
                  (operands.rowWeightGrad ? 3 : 0) + (operands.weightedAct ? 2 : 0));
    case VectorWork::kWeightedSum:
      return operands.weights ? 2 * n : n;
    default:
      return n * op.element.flops;
  }
}

}  // namespace sluice
