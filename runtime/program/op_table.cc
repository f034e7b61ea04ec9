#include "runtime/program/op_table.h"

#include <algorithm>
#include <array>

#include "runtime/base/rounding.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// --- Operands, reads and then writes --------------------------------------------------------------------

constexpr DType kF32Only[] = {DType::kF32};
constexpr DType kOfGradients[] = {DType::kF32, DType::kBF16};
constexpr DType kOfRows[] = {DType::kBF16, DType::kF32};  // where they are moved, scaled or summed

constexpr OperandInfo scalars(std::string_view name, std::string_view shape, int8_t with = -1) {
  return {.name = name, .shape = shape, .types = kF32Only, .optional = true, .with = with};
}
constexpr DType kOfFactors[] = {DType::kBF16, DType::kI8, DType::kF8_E4M3};
constexpr DType kOfWeights[] = {DType::kBF16, DType::kI8, DType::kU8};
constexpr OperandInfo kFactor = {
    .name = "a", .shape = "Xk", .types = kOfFactors, .isFactor = true, .inPlace = Extent::kTokens};
constexpr OperandInfo weight(std::string_view shape) {
  return {.name = "b", .shape = shape, .types = kOfWeights, .isFactor = true, .isWeight = true};
}
constexpr DType kOfRowScales[] = {DType::kF32, DType::kBF16};
constexpr OperandInfo rowScale(std::string_view name, std::string_view shape, int8_t with = -1) {
  return {.name = name, .shape = shape, .types = kOfRowScales, .optional = true, .with = with, .scales = 0};
}
constexpr OperandInfo kRowScale = rowScale("row scale", "X");
constexpr OperandInfo kWeightScale = {
    .name = "weight scale", .shape = "", .types = kF32Only, .optional = true, .scales = 1};
constexpr OperandInfo kWeightZero = {
    .name = "weight zero", .shape = "", .types = kF32Only, .optional = true, .scales = 1, .isZero = true};
constexpr OperandInfo amax(std::string_view name, int8_t of) {
  return {.name = name, .shape = "E1", .types = kF32Only, .optional = true, .amaxOf = of};
}
constexpr OperandInfo kRowAmax = amax("row amax", 0);
constexpr OperandInfo kWeightAmax = amax("weight amax", 1);
constexpr OperandInfo rows(std::string_view name, std::string_view shape, bool isOptional = false) {
  return {.name = name, .shape = shape, .types = kOfRows, .optional = isOptional};
}
constexpr OperandInfo orRows(OperandInfo operand) {
  operand.inPlace = Extent::kRows;
  return operand;
}
constexpr OperandInfo optional(std::string_view name, std::string_view shape) {
  return {.name = name, .shape = shape, .optional = true};
}

constexpr DType kMoved[] = {DType::kBF16, DType::kF32, DType::kI8, DType::kF8_E4M3};
constexpr OperandInfo kDispatchReads[] = {
    {.name = "tokens", .shape = "Tn", .types = kMoved, .optional = true},
    scalars("weights", "TK"),
    rowScale("scales", "T")};
constexpr OperandInfo kDispatchWrites[] = {
    {.name = "rows", .shape = "Rn", .types = kMoved, .optional = true, .with = 0},
    scalars("row weights", "R", 1),
    rowScale("row scales", "R", 2)};

constexpr OperandInfo kGmmReads[] = {kFactor,   weight("Ekn"), optional("bias", "En"),
                                     kRowScale, kWeightScale,  kWeightZero,
                                     kRowAmax,  kWeightAmax};
constexpr OperandInfo kGmmWrites[] = {{"c", "Xn"}};

constexpr DType kOfRowFactors[] = {DType::kBF16, DType::kF8_E4M3};
constexpr OperandInfo rowFactor(std::string_view name, std::string_view shape) {
  return {.name = name, .shape = shape, .types = kOfRowFactors, .isFactor = true, .inPlace = Extent::kTokens};
}
constexpr OperandInfo kWeightGradReads[] = {
    rowFactor("a", "Xm"), rowFactor("b", "Xn"),     scalars("row scale", "X"),   amax("a amax", 0),
    amax("b amax", 1),    optional("scales", "Xs"), optional("end scales", "Ec")};
constexpr OperandInfo kWeightGradWrites[] = {{.name = "c", .shape = "Emn", .types = kOfGradients}};

constexpr OperandInfo kActivationReads[] = {{"gate_up", "Xi"}};
constexpr OperandInfo kActivationWrites[] = {{"act", "Xn"}};

constexpr OperandInfo kActivationGradReads[] = {
    {"act_grad", "Xn"}, {"gate_up", "Xi"}, scalars("row weights", "X")};
constexpr OperandInfo kActivationGradWrites[] = {
    {"gate_up_grad", "Xi"}, scalars("row weight grad", "X"), optional("weighted act", "Xn")};

constexpr OperandInfo kCombineReturnReads[] = {rows("rows", "Rn"), scalars("row scalars", "R")};
constexpr OperandInfo kCombineReturnWrites[] = {rows("returned", "Pn"), scalars("returned scalars", "P", 1)};

constexpr OperandInfo kCombineSumReads[] = {orRows(rows("returned", "Pn")), scalars("weights", "TK"),
                                            orRows(scalars("returned scalars", "P")),
                                            rows("bias", "n", true)};
constexpr OperandInfo kCombineSumWrites[] = {rows("tokens", "Tn"), scalars("token scalars", "TK", 2)};

constexpr OperandInfo kAddReads[] = {{"a", "Xn"}, {"b", "Xn"}};
constexpr OperandInfo kScaleReads[] = {rows("a", "Xn"), scalars("row weights", "X")};
constexpr OperandInfo kScaleWrites[] = {rows("c", "Xn")};

constexpr OperandInfo kGmmActivationReads[] = {kFactor,   weight("Eki"), optional("bias", "Ei"),
                                               kRowScale, kWeightScale,  kWeightZero,
                                               kRowAmax,  kWeightAmax};
constexpr OperandInfo kGmmActivationWrites[] = {{"act", "Xn"}, optional("gate_up", "Xi")};

constexpr OperandInfo kGmmActivationGradReads[] = {
    kFactor,     weight("Ekn"), {"gate_up", "Xi"}, scalars("row weights", "X"), kRowScale, kWeightScale,
    kWeightZero, kRowAmax,      kWeightAmax};

constexpr OperandInfo kColumnSumReads[] = {{"a", "Xn"}, scalars("row scale", "X")};
constexpr OperandInfo kColumnSumWrites[] = {{.name = "c", .shape = "En", .types = kOfGradients}};

constexpr OperandInfo kRowDotReads[] = {{"a", "Xn"}, {"b", "En"}, scalars("addend", "X")};
constexpr OperandInfo kRowDotWrites[] = {{.name = "c", .shape = "X", .types = kF32Only}};

constexpr DType kI8Only[] = {DType::kI8};
constexpr OperandInfo kQuantizeReads[] = {
    {"a", "Xn"}, {.name = "column scale", .shape = "", .types = kF32Only, .optional = true}};
constexpr OperandInfo kQuantizeWrites[] = {{.name = "codes", .shape = "Xn", .types = kI8Only},
                                           {.name = "scale", .shape = "X", .types = kF32Only}};

constexpr OperandInfo kAmaxReads[] = {{"a", "Xn"}};
constexpr OperandInfo kAmaxWrites[] = {{.name = "amax", .shape = "E1", .types = kF32Only}};

constexpr DType kE4m3Only[] = {DType::kF8_E4M3};
constexpr OperandInfo kEncodeReads[] = {
    {.name = "a", .shape = "Xn", .types = kOfRowFactors}, amax("amax", 0), rowScale("scale", "X")};
constexpr OperandInfo kEncodeWrites[] = {{.name = "codes", .shape = "Xn", .types = kE4m3Only},
                                         optional("scales", "Xs"),
                                         optional("end scales", "Ec")};

// --- The tables -----------------------------------------------------------------------------------------

// By OpKind: core, domain, cut, vector work, flags, operands.
constexpr std::array<OpInfo, static_cast<size_t>(OpKind::MAX) + 1> kOps = {{
    {CoreKind::kVector, Domain::kSends, Cut::kWhole, VectorWork::kNone, 0, 0, kDispatchReads,
     kDispatchWrites},
    {CoreKind::kCube, Domain::kRows, Cut::kColumns, VectorWork::kNone, 1, 0, kGmmReads, kGmmWrites},
    {CoreKind::kCube, Domain::kSums, Cut::kRectangles, VectorWork::kNone, 0, 1, kWeightGradReads,
     kWeightGradWrites},
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kActivation, 0, 0, kActivationReads,
     kActivationWrites},
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kActivationGrad, 0, 0, kActivationGradReads,
     kActivationGradWrites},
    {CoreKind::kVector, Domain::kReturns, Cut::kWhole, VectorWork::kNone, 0, 0, kCombineReturnReads,
     kCombineReturnWrites},
    {CoreKind::kVector, Domain::kTokens, Cut::kWhole, VectorWork::kWeightedSum, 0, 0, kCombineSumReads,
     kCombineSumWrites},
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kAdd, 0, 0, kAddReads, kGmmWrites},
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kScale, 0, 0, kScaleReads, kScaleWrites},
    {CoreKind::kUnified, Domain::kRows, Cut::kColumns, VectorWork::kActivation, 4, 0, kGmmActivationReads,
     kGmmActivationWrites},
    {CoreKind::kUnified, Domain::kRows, Cut::kColumns, VectorWork::kActivationGrad, 4, 0,
     kGmmActivationGradReads, kActivationGradWrites},
    {CoreKind::kVector, Domain::kSums, Cut::kColumns, VectorWork::kColumnSum, 0, 1, kColumnSumReads,
     kColumnSumWrites},
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kRowDot, 0, 0, kRowDotReads, kRowDotWrites},
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kQuantize, 0, 0, kQuantizeReads,
     kQuantizeWrites},
    {CoreKind::kVector, Domain::kSums, Cut::kWhole, VectorWork::kAmax, 0, 0, kAmaxReads, kAmaxWrites},
    {CoreKind::kVector, Domain::kSums, Cut::kColumns, VectorWork::kEncode, 0, 0, kEncodeReads, kEncodeWrites},
}};

// The number of columns that have codes.
int64_t codedColumns(const TaskProgram& program, const Family& family) {
  return columnsOf(family.tiling, codedFactor(program, family).value_or(1));
}

// Of operand 0 of an op that has rows of codes.
int64_t rowLength(const Family& family) {
  return infoOf(family.op).multiplies() ? family.tiling.k : family.tiling.n;
}

Dim dimOf(char letter, const TaskProgram& program, const Family& family, bool dense) {
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
      return {Extent::kFixed, int64_t{letter == 'i' ? infoOf(tiling.activation).inputs : 1} * tiling.n};
  }
}

}  // namespace

const OpInfo& infoOf(OpKind op) { return kOps[static_cast<size_t>(op)]; }

int32_t weightParts(OpKind op, const Tiling& tiling) {
  const OpInfo& info = infoOf(op);
  if (!info.multiplies()) return 0;
  return info.vector == VectorWork::kActivation ? infoOf(tiling.activation).inputs : 1;
}

bool isTransposed(OpKind op, const Tiling& tiling) { return (tiling.flags & infoOf(op).transposed) != 0; }

bool accumulates(const Family& family) { return (family.tiling.flags & infoOf(family.op).accumulate) != 0; }

bool isAccumulated(const TaskProgram& program, BufferId buffer) {
  return std::any_of(program.families.begin(), program.families.end(),
                     [&](const Family& family) { return accumulates(family) && family.writes[0] == buffer; });
}

void trimOperands(Family& family) {
  for (std::vector<BufferId>* ids : {&family.reads, &family.writes})
    while (!ids->empty() && ids->back().none()) ids->pop_back();
}

BufferId operandAt(const std::vector<BufferId>& operands, size_t index) {
  return index < operands.size() ? operands[index] : BufferId{};
}

bool needsWholeRows(const Family& family) {
  const OpInfo& info = infoOf(family.op);
  if (family.op == OpKind::kEncode) return domainOf(family) == Domain::kRows;
  return info.vector == VectorWork::kActivationGrad && info.cut == Cut::kColumns && has(family.writes, 1);
}

bool isGathered(const TaskProgram& program, const Family& family, size_t operand) {
  const BufferId buffer = operandAt(family.reads, operand);
  return buffer && infoOf(family.op).reads[operand].inPlace == Extent::kTokens &&
         !infoOf(program.at(family.space).kind).dense &&
         program.at(buffer).shape.front().extent == Extent::kTokens;
}

Domain domainOf(const Family& family) {
  const bool isDown = has(family.writes, 2);
  return family.op == OpKind::kEncode && !isDown ? Domain::kRows : infoOf(family.op).domain;
}

SpaceKind spaceFor(const Family& family, SpaceKind own) {
  switch (domainOf(family)) {
    case Domain::kSends:
      return SpaceKind::kSends;
    case Domain::kReturns:
      return SpaceKind::kReturns;
    case Domain::kTokens:
      return SpaceKind::kTokens;
    case Domain::kRows:
      return own == SpaceKind::kTokens || own == SpaceKind::kGroups ? own : SpaceKind::kRows;
    case Domain::kSums:
      return infoOf(own).dense ? SpaceKind::kOnce : SpaceKind::kExperts;
  }
  return own;
}

std::vector<Dim> shapeOf(const OperandInfo& operand, const TaskProgram& program, const Family& family) {
  const bool dense = infoOf(program.at(family.space).kind).dense;
  std::vector<Dim> shape;
  for (char letter : operand.shape)
    if (letter != 'E' || !dense) shape.push_back(dimOf(letter, program, family, dense));
  if (operand.scales == 0 && hasRowBlocks(program, family))
    shape.push_back({Extent::kFixed, rowLength(family) / kMxBlock});
  if (operand.isWeight && isTransposed(family.op, family.tiling)) std::swap(shape.back(), shape.end()[-2]);
  return shape;
}

int64_t tilesOf(OpKind op, const Tiling& tiling) {
  const Cut cut = infoOf(op).cut;
  if (cut == Cut::kWhole) return 1;
  const int64_t columns = tileCount(tiling.n, tiling.tileN);
  return cut == Cut::kColumns ? columns : columns * tileCount(tiling.m, tiling.tileM);
}

Tile tileOf(OpKind op, const Tiling& tiling, int32_t tile) {
  const Cut cut = infoOf(op).cut;
  if (cut == Cut::kWhole) return {{}, {0, tiling.n}};
  if (cut == Cut::kColumns) return {{}, tileRange(tiling.n, tiling.tileN, tile)};
  const int32_t columns = tileCount(tiling.n, tiling.tileN);
  return {tileRange(tiling.m, tiling.tileM, tile / columns),
          tileRange(tiling.n, tiling.tileN, tile % columns)};
}

std::optional<Block> blockOf(const Buffer& weight, const Buffer& scale) {
  const size_t count = weight.shape.size();
  if (count < 2 || scale.shape.size() != count || (count == 3 && scale.shape[0] != weight.shape[0]))
    return {};
  int64_t size[2];
  for (size_t i = 0; i < 2; ++i) {
    const Dim& blocks = scale.shape[count - 2 + i];
    const int64_t whole = weight.shape[count - 2 + i].size * (i == 1 ? codesPerElement(weight.type) : 1);
    if (blocks.extent != Extent::kFixed || blocks.size < 1 || whole % blocks.size != 0) return {};
    size[i] = whole / blocks.size;
  }
  return Block{size[0], size[1]};
}

std::optional<size_t> scaleOf(OpKind op, size_t scaled) {
  const std::span<const OperandInfo> reads = infoOf(op).reads;
  for (size_t i = 0; i < reads.size(); ++i)
    if (reads[i].scales == static_cast<int8_t>(scaled) && !reads[i].isZero) return i;
  return {};
}

std::optional<size_t> zeroOf(OpKind op) {
  const std::span<const OperandInfo> reads = infoOf(op).reads;
  for (size_t i = 0; i < reads.size(); ++i)
    if (reads[i].isZero) return i;
  return {};
}

std::optional<size_t> amaxOf(OpKind op, size_t rounded) {
  const std::span<const OperandInfo> reads = infoOf(op).reads;
  for (size_t i = 0; i < reads.size(); ++i)
    if (reads[i].amaxOf == static_cast<int8_t>(rounded)) return i;
  return {};
}

bool hasRowBlocks(const TaskProgram& program, const Family& family) {
  const BufferId codes = operandAt(family.reads, 0);
  return codes.value < program.buffers.size() && program.at(codes).type == DType::kF8_E4M3 &&
         scaleOf(family.op, 0).has_value();
}

std::optional<size_t> codedFactor(const TaskProgram& program, const Family& family) {
  if (!infoOf(family.op).isSum()) return {};
  for (const size_t factor : {0, 1})
    if (const BufferId id = operandAt(family.reads, factor);
        id.value < program.buffers.size() && program.at(id).type == DType::kF8_E4M3)
      return factor;
  return {};
}

int64_t productFlops(OpKind op, const Tiling& tiling) {
  const OpInfo& info = infoOf(op);
  if (info.isSum()) return int64_t{2} * tiling.m * tiling.n;
  return int64_t{2} * weightParts(op, tiling) * tiling.n * tiling.k;
}

int64_t vectorFlops(const Family& family) {
  const ActivationInfo& activation = infoOf(family.tiling.activation);
  const int64_t n = family.tiling.n;
  switch (infoOf(family.op).vector) {
    case VectorWork::kNone:
      return 0;
    case VectorWork::kActivation:
      return n * activation.flops;
    case VectorWork::kActivationGrad:  // gradients times the weight; the activation times both
      return n * (activation.gradFlops +
                  (has(family.reads, infoOf(family.op).multiplies() ? 3 : 2) ? activation.inputs : 0) +
                  (has(family.writes, 1) ? 3 : 0) + (has(family.writes, 2) ? 2 : 0));
    case VectorWork::kScale:
    case VectorWork::kAdd:
    case VectorWork::kColumnSum:
    case VectorWork::kAmax:
    case VectorWork::kEncode:
      return n;
    case VectorWork::kRowDot:
    case VectorWork::kQuantize:
      return 2 * n;
    case VectorWork::kWeightedSum:
      return has(family.reads, 1) ? 2 * n : n;
  }
  return 0;
}

}  // namespace sluice
