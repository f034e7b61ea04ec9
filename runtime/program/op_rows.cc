// The rows of the op table.
#include <array>

#include "runtime/program/op_table.h"

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
  OperandInfo amax = scalars(findAmax(rounded), name, "E1");
  amax.findAmax = rounded;
  return amax;
}

constexpr DType kOfFactors[] = {DType::kBF16, DType::kI8, DType::kF8_E4M3};
constexpr DType kOfRowFactors[] = {DType::kBF16, DType::kF8_E4M3};
constexpr DType kOfWeights[] = {DType::kBF16, DType::kI8, DType::kU8, DType::kF8_E4M3};
constexpr DType kOfRowScales[] = {DType::kF32, DType::kBF16};
constexpr DType kOfWeightScales[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E8M0,
                                     DType::kF8_E4M3};
constexpr DType kOfWeightZeros[] = {DType::kF32, DType::kI8};
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
  OperandInfo zero = scaleFor(&Ops::b, operand(&Ops::zeroB, "weight_zero", "", kOfWeightZeros));
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

// --- The rows, by OpKind -------------------------------------------------------------------------------

constexpr std::array<OpInfo, static_cast<size_t>(OpKind::MAX) + 1> kOps = {{
    {.domain = Domain::kSends, .reads = kDispatchReads, .writes = kDispatchWrites},
    {.core = CoreKind::kCube,
     .cut = Cut::kColumns,
     .transposed = 1,
     .reads = kGmmReads,
     .writes = kGmmWrites},
    {.core = CoreKind::kCube,
     .domain = Domain::kSums,
     .cut = Cut::kRectangles,
     .accumulate = 1,
     .reads = kWeightGradReads,
     .writes = kWeightGradWrites},
    {.vector = VectorWork::kActivation, .reads = kActivationReads, .writes = kActivationWrites},
    {.vector = VectorWork::kActivationGrad, .reads = kActivationGradReads, .writes = kActivationGradWrites},
    {.domain = Domain::kReturns, .reads = kCombineReturnReads, .writes = kCombineReturnWrites},
    {.domain = Domain::kTokens,
     .vector = VectorWork::kWeightedSum,
     .reads = kCombineSumReads,
     .writes = kCombineSumWrites},
    {.vector = VectorWork::kElements,
     .element = {.flops = 1, .sums = 2},
     .isLinear = true,
     .reads = kAddReads,
     .writes = kAddWrites},
    {.vector = VectorWork::kElements,
     .element = {.flops = 1, .copies = 1},
     .isLinear = true,
     .hasAlpha = true,
     .reads = kScaleReads,
     .writes = kScaleWrites},
    {.core = CoreKind::kUnified,
     .cut = Cut::kColumns,
     .vector = VectorWork::kActivation,
     .transposed = 4,
     .reads = kGmmActivationReads,
     .writes = kGmmActivationWrites},
    {.core = CoreKind::kUnified,
     .cut = Cut::kColumns,
     .vector = VectorWork::kActivationGrad,
     .transposed = 4,
     .reads = kGmmActivationGradReads,
     .writes = kActivationGradWrites},
    {.domain = Domain::kSums,
     .cut = Cut::kColumns,
     .vector = VectorWork::kColumnSum,
     .element = {.flops = 1, .sums = 1},
     .accumulate = 1,
     .reads = kColumnSumReads,
     .writes = kColumnSumWrites},
    {.vector = VectorWork::kRowDot,
     .element = {.flops = 2, .sums = 1},
     .reads = kRowDotReads,
     .writes = kRowDotWrites},
    {.vector = VectorWork::kQuantize,
     .element = {.flops = 2, .copies = 1},
     .reads = kQuantizeReads,
     .writes = kQuantizeWrites},
    {.domain = Domain::kSums,
     .vector = VectorWork::kAmax,
     .element = {.flops = 1, .sums = 1},
     .reads = kAmaxReads,
     .writes = kAmaxWrites},
    {.domain = Domain::kSums,
     .cut = Cut::kColumns,
     .vector = VectorWork::kEncode,
     .element = {.flops = 1, .copies = 1},
     .reads = kEncodeReads,
     .writes = kEncodeWrites},
}};

}  // namespace

const OpInfo& findInfo(OpKind op) { return kOps[static_cast<size_t>(op)]; }

const OperandInfo* OpInfo::find(OperandName id) const {
  for (const std::span<const OperandInfo> operands : {reads, writes})
    for (const OperandInfo& operand : operands)
      if (operand.id == id) return &operand;
  return nullptr;
}

}  // namespace sluice
