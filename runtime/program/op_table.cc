#include "runtime/program/op_table.h"

#include <algorithm>
#include <array>

#include "runtime/base/encoding.h"
#include "runtime/base/rounding.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// --- Operands, reads and then writes --------------------------------------------------------------------

constexpr DType kF32Only[] = {DType::kF32};
constexpr DType kOfGradients[] = {DType::kF32, DType::kBF16};
constexpr DType kOfRows[] = {DType::kBF16, DType::kF32};  // where they are moved, scaled or summed

using Ops = Operands;

constexpr OperandInfo operand(OperandName id, std::string_view name, std::string_view shape,
                              std::span<const DType> types = kBf16Only) {
  return {.id = id, .name = name, .shape = shape, .types = types};
}
constexpr OperandInfo optional(OperandInfo operand, OperandName with = nullptr) {
  operand.optional = true;
  operand.with = with;
  return operand;
}
constexpr OperandInfo scalars(OperandName id, std::string_view name, std::string_view shape,
                              OperandName with = nullptr) {
  return optional(operand(id, name, shape, kF32Only), with);
}
constexpr OperandInfo gathered(OperandInfo operand) {
  operand.isFactor = true;
  operand.inPlace = Extent::kTokens;
  return operand;
}
constexpr OperandInfo orRows(OperandInfo operand) {
  operand.inPlace = Extent::kRows;
  return operand;
}
constexpr OperandInfo scaleFor(OperandName scaled, OperandInfo scale, OperandName with = nullptr) {
  scale.scales = scaled;
  return optional(scale, with);
}
constexpr OperandInfo amax(std::string_view name, OperandName rounded) {
  OperandInfo amax = scalars(amaxOf(rounded), name, "E1");
  amax.amaxOf = rounded;
  return amax;
}

constexpr DType kOfFactors[] = {DType::kBF16, DType::kI8, DType::kF8_E4M3};
constexpr DType kOfRowFactors[] = {DType::kBF16, DType::kF8_E4M3};
constexpr DType kOfWeights[] = {DType::kBF16, DType::kI8, DType::kU8, DType::kF8_E4M3};
constexpr DType kOfRowScales[] = {DType::kF32, DType::kBF16};
constexpr DType kOfWeightScales[] = {DType::kF32, DType::kF8_E8M0, DType::kF8_E4M3};
constexpr DType kMoved[] = {DType::kBF16, DType::kF32, DType::kI8, DType::kF8_E4M3};
constexpr DType kI8Only[] = {DType::kI8};
constexpr DType kE4m3Only[] = {DType::kF8_E4M3};

constexpr OperandInfo kFactor = gathered(operand(&Ops::a, "rows", "Xk", kOfFactors));
constexpr OperandInfo weight(std::string_view shape) {
  OperandInfo weight = operand(&Ops::b, "weight", shape, kOfWeights);
  weight.isFactor = weight.isWeight = true;
  return weight;
}
constexpr OperandInfo bias(std::string_view shape) { return optional(operand(&Ops::bias, "bias", shape)); }
constexpr OperandInfo kRowScale = scaleFor(&Ops::a, operand(&Ops::scaleA, "row_scale", "X", kOfRowScales));
constexpr OperandInfo kWeightScale =
    scaleFor(&Ops::b, operand(&Ops::scaleB, "weight_scale", "", kOfWeightScales));
constexpr OperandInfo weightZero() {
  OperandInfo zero = scaleFor(&Ops::b, operand(&Ops::zeroB, "weight_zero", "", kF32Only));
  zero.isZero = true;
  return zero;
}
constexpr OperandInfo kWeightZero = weightZero();
constexpr OperandInfo kRowAmax = amax("row_amax", &Ops::a);
constexpr OperandInfo kWeightAmax = amax("weight_amax", &Ops::b);
constexpr OperandInfo kWeightFactor = scalars(&Ops::factorB, "weight_factor", "E1");
constexpr OperandInfo kRowWeights = scalars(&Ops::rowWeights, "row_weights", "X");
constexpr OperandInfo kRowFactors = scalars(&Ops::rowWeights, "row_scale", "X");
constexpr OperandInfo kBlockScales = optional(operand(&Ops::codeScales, "scales", "Xs"));
constexpr OperandInfo kEndScales = optional(operand(&Ops::endScales, "end_scales", "Ec"));

constexpr OperandInfo kDispatchReads[] = {
    optional(operand(&Ops::tokens, "tokens", "Tn", kMoved)), scalars(&Ops::weights, "weights", "TK"),
    scaleFor(&Ops::tokens, operand(&Ops::tokenScales, "scales", "T", kOfRowScales))};
constexpr OperandInfo kDispatchWrites[] = {
    optional(operand(&Ops::rows, "rows", "Rn", kMoved), &Ops::tokens),
    scalars(&Ops::rowWeights, "row_weights", "R", &Ops::weights),
    scaleFor(&Ops::rows, operand(&Ops::rowScales, "row_scales", "R", kOfRowScales), &Ops::tokenScales)};

constexpr OperandInfo kGmmReads[] = {kFactor,     weight("Ekn"), bias("En"),  kRowScale,    kWeightScale,
                                     kWeightZero, kRowAmax,      kWeightAmax, kWeightFactor};
constexpr OperandInfo kGmmWrites[] = {operand(&Ops::c, "product", "Xn")};

constexpr OperandInfo kWeightGradReads[] = {gathered(operand(&Ops::a, "a", "Xm", kOfRowFactors)),
                                            gathered(operand(&Ops::b, "b", "Xn", kOfRowFactors)),
                                            kRowFactors,
                                            amax("a_amax", &Ops::a),
                                            amax("b_amax", &Ops::b),
                                            kBlockScales,
                                            kEndScales};
constexpr OperandInfo kWeightGradWrites[] = {operand(&Ops::c, "grad", "Emn", kOfGradients)};

constexpr OperandInfo kActivationReads[] = {operand(&Ops::gateUp, "gate_up", "Xi")};
constexpr OperandInfo kActivationWrites[] = {operand(&Ops::act, "act", "Xn")};

constexpr OperandInfo kActivationGradReads[] = {operand(&Ops::actGrad, "act_grad", "Xn"),
                                                operand(&Ops::gateUp, "gate_up", "Xi"), kRowWeights};
constexpr OperandInfo kActivationGradWrites[] = {operand(&Ops::gateUpGrad, "gate_up_grad", "Xi"),
                                                 scalars(&Ops::rowWeightGrad, "row_weight_grad", "X"),
                                                 optional(operand(&Ops::weightedAct, "weighted_act", "Xn"))};

constexpr OperandInfo kCombineReturnReads[] = {operand(&Ops::rows, "rows", "Rn", kOfRows),
                                               scalars(&Ops::rowScalars, "row_scalars", "R")};
constexpr OperandInfo kCombineReturnWrites[] = {
    operand(&Ops::returned, "returned", "Pn", kOfRows),
    scalars(&Ops::returnedScalars, "returned_scalars", "P", &Ops::rowScalars)};

constexpr OperandInfo kCombineSumReads[] = {orRows(operand(&Ops::returned, "returned", "Pn", kOfRows)),
                                            scalars(&Ops::weights, "weights", "TK"),
                                            orRows(scalars(&Ops::returnedScalars, "returned_scalars", "P")),
                                            optional(operand(&Ops::bias, "bias", "n", kOfRows))};
constexpr OperandInfo kCombineSumWrites[] = {
    operand(&Ops::tokens, "tokens", "Tn", kOfRows),
    scalars(&Ops::tokenScalars, "token_scalars", "TK", &Ops::returnedScalars)};

constexpr OperandInfo kAddReads[] = {operand(&Ops::a, "a", "Xn"), operand(&Ops::b, "b", "Xn")};
constexpr OperandInfo kAddWrites[] = {operand(&Ops::c, "sum", "Xn")};
constexpr OperandInfo kScaleReads[] = {operand(&Ops::a, "value", "Xn", kOfRows), kRowWeights};
constexpr OperandInfo kScaleWrites[] = {operand(&Ops::c, "scaled", "Xn", kOfRows)};

constexpr OperandInfo kGmmActivationReads[] = {kFactor,   weight("Eki"), bias("Ei"),
                                               kRowScale, kWeightScale,  kWeightZero,
                                               kRowAmax,  kWeightAmax,   kWeightFactor};
constexpr OperandInfo kGmmActivationWrites[] = {operand(&Ops::act, "act", "Xn"),
                                                optional(operand(&Ops::gateUp, "gate_up", "Xi"))};

constexpr OperandInfo kGmmActivationGradReads[] = {
    kFactor,      weight("Ekn"), operand(&Ops::gateUp, "gate_up", "Xi"),
    kRowWeights,  kRowScale,     kWeightScale,
    kWeightZero,  kRowAmax,      kWeightAmax,
    kWeightFactor};

constexpr OperandInfo kColumnSumReads[] = {operand(&Ops::a, "a", "Xn"), kRowFactors};
constexpr OperandInfo kColumnSumWrites[] = {operand(&Ops::c, "sums", "En", kOfGradients)};

constexpr OperandInfo kRowDotReads[] = {operand(&Ops::a, "a", "Xn"), operand(&Ops::b, "b", "En"),
                                        scalars(&Ops::addend, "addend", "X")};
constexpr OperandInfo kRowDotWrites[] = {operand(&Ops::c, "dots", "X", kF32Only)};

constexpr OperandInfo columnScale() {
  OperandInfo scale = optional(operand(&Ops::columnScale, "column_scale", "E1n", kF32Only));
  scale.mayTurn = true;
  return scale;
}
constexpr OperandInfo kQuantizeReads[] = {operand(&Ops::a, "value", "Xn"), columnScale()};
constexpr OperandInfo kQuantizeWrites[] = {operand(&Ops::codes, "codes", "Xn", kI8Only),
                                           operand(&Ops::codeScales, "scale", "X", kF32Only)};

constexpr OperandInfo kAmaxReads[] = {operand(&Ops::a, "a", "Xn")};
constexpr OperandInfo kAmaxWrites[] = {operand(&Ops::amax, "amax", "E1", kF32Only)};

constexpr OperandInfo kEncodeReads[] = {
    operand(&Ops::a, "value", "Xn", kOfRowFactors), amax("amax", &Ops::a),
    scaleFor(&Ops::a, operand(&Ops::scaleA, "value_scale", "X", kOfRowScales))};
constexpr OperandInfo kEncodeWrites[] = {operand(&Ops::codes, "codes", "Xn", kE4m3Only), kBlockScales,
                                         kEndScales};

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
    {CoreKind::kVector, Domain::kRows, Cut::kWhole, VectorWork::kAdd, 0, 0, kAddReads, kAddWrites},
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
  return columnsOf(family.tiling, codedFactor(program, family));
}

// The columns of what has rows of codes.
int64_t rowLength(const Family& family) {
  return infoOf(family.op).multiplies() ? family.tiling.k : family.tiling.n;
}

bool hasE4m3(const TaskProgram& program, BufferId id) {
  return id.value < program.buffers.size() && program.at(id).type == DType::kF8_E4M3;
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

const OperandInfo* OpInfo::find(OperandName id) const {
  for (const std::span<const OperandInfo> operands : {reads, writes})
    for (const OperandInfo& operand : operands)
      if (operand.id == id) return &operand;
  return nullptr;
}

int32_t weightParts(OpKind op, const Tiling& tiling) {
  const OpInfo& info = infoOf(op);
  if (!info.multiplies()) return 0;
  return info.vector == VectorWork::kActivation ? infoOf(tiling.activation).inputs : 1;
}

bool isTransposed(OpKind op, const Tiling& tiling) { return (tiling.flags & infoOf(op).transposed) != 0; }

bool accumulates(const Family& family) { return (family.tiling.flags & infoOf(family.op).accumulate) != 0; }

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
  const OpInfo& op = infoOf(family.op);
  Operands found;
  for (size_t i = 0; i < op.reads.size(); ++i) found.*op.reads[i].id = bufferAt(family.reads, i);
  for (size_t i = 0; i < op.writes.size(); ++i) found.*op.writes[i].id = bufferAt(family.writes, i);
  return found;
}

BufferId findBuffer(const Family& family, OperandName operand) {
  const OpInfo& op = infoOf(family.op);
  for (size_t i = 0; i < op.reads.size(); ++i)
    if (op.reads[i].id == operand) return bufferAt(family.reads, i);
  for (size_t i = 0; i < op.writes.size(); ++i)
    if (op.writes[i].id == operand) return bufferAt(family.writes, i);
  return {};
}

BufferId& placeOf(Family& family, OperandName operand) {
  const OpInfo& op = infoOf(family.op);
  const bool isRead = std::ranges::find(op.reads, operand, &OperandInfo::id) != op.reads.end();
  std::vector<BufferId>& ids = isRead ? family.reads : family.writes;
  const std::span<const OperandInfo> operands = isRead ? op.reads : op.writes;
  const auto position = static_cast<size_t>(op.find(operand) - operands.data());
  if (ids.size() <= position) ids.resize(position + 1);
  return ids[position];
}

bool needsWholeRows(const Family& family) {
  const OpInfo& info = infoOf(family.op);
  if (family.op == OpKind::kEncode) return domainOf(family) == Domain::kRows;
  return info.vector == VectorWork::kActivationGrad && info.cut == Cut::kColumns &&
         findBuffer(family, &Operands::rowWeightGrad);
}

bool isGathered(const TaskProgram& program, const Family& family, OperandName operand) {
  const BufferId buffer = findBuffer(family, operand);
  return buffer && infoOf(family.op).find(operand)->inPlace == Extent::kTokens &&
         !infoOf(program.at(family.space).kind).dense &&
         program.at(buffer).shape.front().extent == Extent::kTokens;
}

Domain domainOf(const Family& family) {
  const bool isDown = !findBuffer(family, &Operands::endScales).none();
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
  if (operand.scalesRows() && hasRowBlocks(program, family))
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
    const std::optional<int64_t> each = numbersPerScale(weight.type, whole, blocks.size);
    if (blocks.extent != Extent::kFixed || !each) return {};
    size[i] = *each;
  }
  return Block{size[0], size[1]};
}

OperandName scaledRows(OpKind op) {
  for (const OperandInfo& operand : infoOf(op).reads)
    if (operand.scalesRows()) return operand.scales;
  return nullptr;
}

bool hasRowBlocks(const TaskProgram& program, const Family& family) {
  const OperandName rows = scaledRows(family.op);
  return rows != nullptr && hasE4m3(program, findBuffer(family, rows));
}

OperandName codedFactor(const TaskProgram& program, const Family& family) {
  if (!infoOf(family.op).isSum()) return nullptr;
  for (const OperandName factor : kFactors)
    if (hasE4m3(program, findBuffer(family, factor))) return factor;
  return nullptr;
}

int64_t productFlops(OpKind op, const Tiling& tiling) {
  const OpInfo& info = infoOf(op);
  if (info.isSum()) return int64_t{2} * tiling.m * tiling.n;
  return int64_t{2} * weightParts(op, tiling) * tiling.n * tiling.k;
}

int64_t vectorFlops(const Family& family) {
  const Operands operands = findOperands(family);
  const ActivationInfo& activation = infoOf(family.tiling.activation);
  const int64_t n = family.tiling.n;
  switch (infoOf(family.op).vector) {
    case VectorWork::kNone:
      return 0;
    case VectorWork::kActivation:
      return n * activation.flops;
    case VectorWork::kActivationGrad:  // gradients times the weight; the activation times both
      return n * (activation.gradFlops + (operands.rowWeights ? activation.inputs : 0) +
                  (operands.rowWeightGrad ? 3 : 0) + (operands.weightedAct ? 2 : 0));
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
      return operands.weights ? 2 * n : n;
  }
  return 0;
}

}  // namespace sluice
