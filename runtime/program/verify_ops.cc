// Families: ids are in range; tiling, tile count and operands are those of the op (op_table.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "runtime/base/encoding.h"
#include "runtime/base/rounding.h"
#include "runtime/program/op_table.h"
#include "runtime/program/sharding.h"
#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

constexpr OperandName kBlockScales[] = {&Operands::codeScales, &Operands::endScales};

Status checkTiling(const TaskProgram& program, const Family& family, const std::string& where) {
  struct Field {
    std::string_view name;
    int64_t value;
    bool used;
  };
  const Tiling& t = family.tiling;
  const OpInfo& op = findInfo(family.op);
  for (const auto& [name, value, needed] :
       {Field{"m", t.m, op.usesM()}, Field{"n", t.n, true}, Field{"k", t.k, op.usesK()},
        Field{"tileM", t.tileM, op.usesTileM()}, Field{"tileN", t.tileN, op.usesTileN()}}) {
    if (needed && (value < 1 || value > kMaxDim))
      return fail("{}: field {} of the tiling is {}, expected 1 to {}", where, name, value, kMaxDim);
    if (!needed && value != 0)
      return fail("{}: field {} of the tiling is {}, but this op does not use it", where, name, value);
  }
  if (!op.usesAlpha() ? t.alpha != 0 : !std::isfinite(t.alpha))
    return fail("{}: field alpha of the tiling is {}, expected {}", where, t.alpha,
                op.usesAlpha() ? "a finite number" : "0, because this op does not use it");
  const int flags = op.transposed | op.accumulate | (op.isSum() ? kScalesA : 0);
  if ((t.flags & ~flags) != 0)
    return fail("{}: flags of the tiling are {:#x}, expected {:#x} at most", where, t.flags, flags);
  if (op.vector == VectorWork::kWeightedSum && t.k != program.topK)
    return fail("{}: field k of the tiling is {}, but top_k is {}", where, t.k, program.topK);
  return {};
}

// Kernels read and write scalars of rows, tokens and pairs as one array, without gaps; other floats are
// elements of matrices.
Status checkGaps(const TaskProgram& program, const Buffer& buffer, const OperandInfo& operand,
                 const std::string& where) {
  const Extent extent = buffer.shape[0].extent;
  const bool isMatrix = operand.types.size() > 1 && operand.scales == nullptr;
  if (buffer.type != DType::kF32 || isMatrix || !buffer.region) return {};
  if (extent == Extent::kFixed || extent == Extent::kExperts) return {};
  const int64_t bytes = dtypeBytes(DType::kF32) * (buffer.shape.size() > 1 ? buffer.shape[1].size : 1);
  const Region& region = program.at(buffer.region);
  if (region.stride == bytes) return {};
  return fail("{}: operand '{}' is buffer '{}' in region '{}' of stride {}, expected {}: no gaps", where,
              operand.name, buffer.name, region.name, region.stride, bytes);
}

// Whether the buffer may have another extent than the op requires, because its rows are read where they are.
bool isReadInPlace(const TaskProgram& program, const Family& family, const Buffer& buffer,
                   const OperandInfo& operand) {
  if (operand.inPlace == Extent::kFixed || program.mesh.peers() > 1 || buffer.shape.empty() ||
      buffer.shape.front().extent != operand.inPlace)
    return false;
  const Tiling& t = family.tiling;
  return !operand.isFactor ||
         (buffer.type == DType::kBF16 && t.roundA == Rounding::kNone && t.roundB == Rounding::kNone);
}

Status checkOperand(const TaskProgram& program, const Family& family, BufferId id, const OperandInfo& operand,
                    const std::string& where) {
  if (id.none() && operand.optional) return {};
  if (id.none()) return fail("{}: operand '{}' is absent", where, operand.name);
  if (!inRange(id, program.buffers))
    return fail("{}: operand '{}' is buffer {}, but the program declares {} buffers", where, operand.name,
                id.value, program.buffers.size());
  const Buffer& buffer = program.at(id);
  const bool isOfWeight = operand.isWeight || (operand.scales != nullptr && !operand.scalesRows());
  if (buffer.type == DType::kF8_E4M3 && !buffer.region && !isOfWeight)
    return fail(
        "{}: operand '{}' is buffer '{}' of type {}, the caller's memory, expected one between kernels",
        where, operand.name, buffer.name, dtypeName(buffer.type));
  const bool isOneOf =
      std::find(operand.types.begin(), operand.types.end(), buffer.type) != operand.types.end();
  DType type = isOneOf ? buffer.type : operand.types.front();
  if (operand.scalesRows()) type = hasRowBlocks(program, family) ? DType::kBF16 : DType::kF32;
  std::vector<Dim> shape = operand.shape.empty() ? buffer.shape : shapeOf(operand, program, family);
  if (isReadInPlace(program, family, buffer, operand)) shape.front() = {operand.inPlace, 0};
  if (operand.isWeight) {  // an odd number of codes has no elements
    const int64_t codes = codesPerElement(type);
    shape.back().size = shape.back().size % codes == 0 ? shape.back().size / codes : -1;
  }
  std::vector<Dim> turned = shape;
  if (operand.mayTurn) std::swap(turned.back(), turned.end()[-2]);
  if (buffer.type != type || (buffer.shape != shape && buffer.shape != turned)) {
    const bool countsInputs = operand.shape.ends_with('i');
    const ActivationKind kind = family.tiling.activation;
    return fail(
        "{}: operand '{}' is buffer '{}' {}, expected {}{}{}", where, operand.name, buffer.name,
        shapeText(buffer.type, buffer.shape), shapeText(type, shape),
        turned != shape ? " or " + shapeText(type, turned) : "",
        countsInputs ? fmt::format(", for {} inputs of {}", findInfo(kind).inputs, text::word(kind)) : "");
  }
  return checkGaps(program, buffer, operand, where);
}

Status checkOperands(const TaskProgram& program, const Family& family, const std::vector<BufferId>& ids,
                     std::span<const OperandInfo> operands, std::string_view side, const std::string& where) {
  if (ids.size() > operands.size())
    return fail("{} has {} {}, expected {}", where, ids.size(), side, operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    if (Status status = checkOperand(program, family, bufferAt(ids, i), operands[i], where); !status)
      return status;
  return {};
}

// Operands for which the op allows several types have the same one.
Status checkTypes(const TaskProgram& program, const Family& family, const std::string& where) {
  const Buffer* first = nullptr;
  const auto check = [&](const std::vector<BufferId>& ids, std::span<const OperandInfo> operands) -> Status {
    for (size_t i = 0; i < ids.size(); ++i) {
      const OperandInfo& operand = operands[i];
      if (!ids[i] || operand.types.size() == 1 || operand.isFactor || operand.scales != nullptr) continue;
      const Buffer& buffer = program.at(ids[i]);
      if (first == nullptr) first = &buffer;
      if (buffer.type != first->type)
        return fail("{}: operand '{}' is buffer '{}' of type {}, expected {} as buffer '{}'", where,
                    operand.name, buffer.name, dtypeName(buffer.type), dtypeName(first->type), first->name);
    }
    return {};
  };
  const Status status = check(family.reads, findInfo(family.op).reads);
  return status ? check(family.writes, findInfo(family.op).writes) : status;
}

// A weight that is multiplied by rows of codes has blocks of one column, along the whole sum, or, of codes of
// 4 bits, along a group of it.
Status checkSums(const Family& family, DType weight, const Block& block, const std::string& where) {
  const bool isTurned = isTransposed(family.op, family.tiling), inGroups = codesPerElement(weight) != 1;
  const int64_t along = isTurned ? block.columns : block.rows, across = isTurned ? block.rows : block.columns;
  const int64_t k = family.tiling.k;
  if (across != 1 || !(inGroups ? isGroup(along, k) : along == k))
    return fail("{} multiplies codes of rows by a weight with blocks of {} by {}, expected {}", where,
                block.rows, block.columns,
                inGroups
                    ? "those of 1 column and 32, 64, 128 or a multiple of 256 along the sum, or all of it"
                    : "1 scale per column");
  return {};
}

// Rows of codes need a weight of codes, whose sums fit into an int32.
Status checkRowsOfCodes(const TaskProgram& program, const Family& family, const std::string& where) {
  const Operands ids = findOperands(family);
  if (!findInfo(family.op).multiplies() || !isCodes(program.at(ids.a).type)) return {};
  const DType weight = program.at(ids.b).type;
  if (!isCodes(weight))
    return fail("{} multiplies codes of rows by a weight of type {}, expected codes", where,
                dtypeName(weight));
  if (codesPerElement(weight) == 1 && family.tiling.k > kMaxCodes)
    return fail("{} adds {} products of codes, expected at most {}", where, family.tiling.k, kMaxCodes);
  return {};
}

// Codes are made of numbers that are rounded to E4M3, and have scales if that is in blocks.
Status checkEncoded(const Family& family, const std::string& where) {
  const OpInfo& op = findInfo(family.op);
  const Tiling& t = family.tiling;
  if (!isEncodable(t.roundA))
    return fail("{} encodes with rounding {}, expected E4M3, not in squares", where, text::word(t.roundA));
  const bool inBlocks = !findInfo(t.roundA).isScaled;
  for (const OperandName scales : kBlockScales) {  // end scales are those of blocks down columns
    const bool exists = !findBuffer(family, scales).none();
    if (exists ? !inBlocks : inBlocks && scales == &Operands::codeScales)
      return fail("{} has {} '{}', but encodes with rounding {}", where, exists ? "a" : "no",
                  op.find(scales)->name, text::word(t.roundA));
  }
  for (const int32_t columns : {t.n, std::min(t.n, t.tileN)})
    if (inBlocks && columns % kMxBlock != 0)
      return fail("{} has ranges of {} columns, expected multiples of {}", where, columns, kMxBlock);
  return {};
}

// Codes of 8-bit floats are one factor of a sum, with the scales of their blocks if they have some, and have
// been rounded as the family says.
Status checkCodes(const TaskProgram& program, const Family& family, const std::string& where) {
  const OpInfo& op = findInfo(family.op);
  const Tiling& t = family.tiling;
  const Operands ids = findOperands(family);
  if (op.vector == VectorWork::kEncode) return checkEncoded(family, where);
  if (op.multiplies() && hasRowBlocks(program, family)) {
    if (!isEncodableInBlocks(t.roundA))
      return fail("{}: factor 'a' has codes, but is rounded to {}, expected E4M3 in blocks", where,
                  text::word(t.roundA));
    if (t.k % kMxBlock != 0)
      return fail("{}: factor 'a' has codes of {} columns, expected a multiple of {}", where, t.k, kMxBlock);
  }
  if (!op.isSum()) return {};
  if ((t.flags & kScalesA) != 0 && !(ids.rowWeights && roundsFactors(t)))
    return fail("{} scales 'a', but {}", where, ids.rowWeights ? "rounds no factor" : "has no 'row_scale'");
  const OperandName coded = codedFactor(program, family);
  const Rounding rounding = findRounding(t, coded);
  const std::string_view name = coded != nullptr ? op.find(coded)->name : "";
  const bool inBlocks = coded != nullptr && !findInfo(rounding).isScaled;
  for (const OperandName scales : kBlockScales)
    if ((ids.*scales).none() == inBlocks)
      return fail("{} has {} '{}', but {}", where, inBlocks ? "no" : "a", op.find(scales)->name,
                  coded != nullptr
                      ? fmt::format("operand '{}' has codes of rounding {}", name, text::word(rounding))
                      : "no operand has codes");
  if (coded == nullptr) return {};
  if (program.at(coded == &Operands::a ? ids.b : ids.a).type != DType::kBF16)
    return fail("{} has two factors of codes, expected one", where);
  if (!isEncodable(rounding))
    return fail("{}: factor '{}' has codes, but is rounded to {}, expected E4M3, not in squares", where, name,
                text::word(rounding));
  if (ids.rowWeights && (coded == &Operands::a) == ((t.flags & kScalesA) != 0))
    return fail("{}: factor '{}' has codes, but is multiplied by the row scale", where, name);
  if (const int32_t columns = countColumns(t, coded); inBlocks && columns % kMxBlock != 0)
    return fail("{}: factor '{}' has codes of {} columns, expected a multiple of {}", where, name, columns,
                kMxBlock);
  return {};
}

// Only factors of bf16 are rounded: by an amax, or in whole blocks along the sum; where that is of rows, the
// last block of an expert may be shorter.
Status checkRoundings(const TaskProgram& program, const Family& family, const std::string& where) {
  const OpInfo& op = findInfo(family.op);
  const Tiling& t = family.tiling;
  const Operands ids = findOperands(family);
  for (const OperandName operand : kFactors) {
    const Rounding rounding = findRounding(t, operand);
    const bool isA = operand == &Operands::a;
    if (rounding > Rounding::MAX)
      return fail("{}: rounding {} is not known", where, static_cast<int>(rounding));
    const std::string what =
        fmt::format("{}: factor '{}' is rounded to {}", where, isA ? 'a' : 'b', text::word(rounding));
    const bool encodes = op.vector == VectorWork::kEncode && isA;
    if (!op.hasFactors() && !encodes && rounding != Rounding::kNone)
      return fail("{}, but this op does not multiply", what);
    const OperandName amax = findAmax(operand);
    if (const OperandInfo* info = op.find(amax); info && (ids.*amax).none() == findInfo(rounding).isScaled)
      return fail("{} with {} '{}', expected {}", what, ids.*amax ? "a" : "no", info->name,
                  findInfo(rounding).isScaled ? "one" : "none");
    if (rounding == Rounding::kNone || !op.hasFactors()) continue;
    const Buffer& factor = program.at(ids.*operand);
    if (isA && hasRowBlocks(program, family)) continue;  // checkCodes()
    if (factor.type != DType::kBF16 && !op.isSum())
      return fail("{}, but is buffer '{}' of type {}, expected BF16", what, factor.name,
                  dtypeName(factor.type));
    if (!op.isSum() && program.at(ids.b).type != DType::kBF16)
      return fail("{}, but operand '{}' is buffer '{}' of type {}, expected BF16", what,
                  op.find(&Operands::b)->name, program.at(ids.b).name, dtypeName(program.at(ids.b).type));
    if (findInfo(rounding).isScaled) continue;
    if (!op.isSum() && t.k % kMxBlock != 0)
      return fail("{}, but the sum has {} numbers, expected a multiple of {}", what, t.k, kMxBlock);
    if (!findInfo(rounding).isSquare) continue;
    if (!op.find(operand)->isWeight) return fail("{}, but is no weight", what);
    const int32_t columns = std::min(t.n, t.tileN);
    if (t.n % kMxBlock != 0 || columns % kMxBlock != 0)
      return fail("{}, but the product has {} columns in tiles of {}, expected multiples of {}", what, t.n,
                  columns, kMxBlock);
  }
  return {};
}

// Tasks read whole elements, so no range of columns may begin or end between codes that share one.
Status checkPairs(const TaskProgram& program, const Family& family, const std::string& where) {
  if (!findInfo(family.op).multiplies() || isTransposed(family.op, family.tiling)) return {};
  const Buffer& weight = program.at(findBuffer(family, &Operands::b));
  const int64_t codes = codesPerElement(weight.type);
  for (const int32_t columns : {family.tiling.n, std::min(family.tiling.n, family.tiling.tileN)})
    if (columns % codes != 0)
      return fail("{} has ranges of {} columns of buffer '{}' of type {}, expected even ones", where, columns,
                  weight.name, dtypeName(weight.type));
  return {};
}

// Zeros belong to codes of 4 bits, and lie as their scales; which type they have follows from these.
Status checkZeros(const TaskProgram& program, const Family& family, const std::string& where) {
  const Operands ids = findOperands(family);
  if (!ids.zeroB) return {};
  const Buffer &zeros = program.at(ids.zeroB), &codes = program.at(ids.b);
  if (codesPerElement(codes.type) == 1)
    return fail("{} has a 'weight_zero', but operand 'weight' is buffer '{}' of type {}, expected U8", where,
                codes.name, dtypeName(codes.type));
  if (!ids.scaleB) return fail("{} has a 'weight_zero' without a 'weight_scale'", where);
  const Buffer& scale = program.at(ids.scaleB);
  const DType type = zeroType(scale.type);
  if (zeros.shape == scale.shape && zeros.type == type && isNumber(scale.type)) return {};
  return fail("{}: operand 'weight_zero' is buffer '{}' {}, expected {} as buffer '{}'", where, zeros.name,
              shapeText(zeros.type, zeros.shape), shapeText(type, scale.shape), scale.name);
}

// A factor belongs to scales of E4M3.
Status checkFactor(const TaskProgram& program, const Family& family, const std::string& where) {
  const Operands ids = findOperands(family);
  if (!ids.factorB) return {};
  if (!ids.scaleB) return fail("{} has a 'weight_factor' without a 'weight_scale'", where);
  const Buffer& scale = program.at(ids.scaleB);
  if (scale.type == DType::kF8_E4M3) return {};
  return fail(
      "{} has a 'weight_factor', but operand 'weight_scale' is buffer '{}' of type {}, expected F8_E4M3",
      where, scale.name, dtypeName(scale.type));
}

// Codes have a scale, and nothing else has: rows one per row, a weight one per block. A weight that rows of
// codes are multiplied by may have none.
Status checkScales(const TaskProgram& program, const Family& family, const std::string& where) {
  const OpInfo& op = findInfo(family.op);
  const Operands ids = findOperands(family);
  const bool hasRowsOfCodes = ids.a && isCodes(program.at(ids.a).type);
  for (const OperandInfo& operand : op.reads) {
    if (operand.scales == nullptr || operand.isZero) continue;
    const OperandInfo& scaled = *op.find(operand.scales);
    const BufferId codesId = ids.*scaled.id, scaleId = ids.*operand.id;
    if (!codesId) {
      if (scaleId) return fail("{} has a '{}' without '{}'", where, operand.name, scaled.name);
      continue;
    }
    const Buffer& codes = program.at(codesId);
    const bool hasScale = isCodes(codes.type) || codes.type == DType::kF8_E4M3;
    const bool mayLack = scaled.isWeight && hasRowsOfCodes;
    if (scaleId ? !hasScale : hasScale && !mayLack)
      return fail("{} has {} '{}', but operand '{}' is buffer '{}' of type {}", where, scaleId ? "a" : "no",
                  operand.name, scaled.name, codes.name, dtypeName(codes.type));
    if (!scaleId || !scaled.isWeight) continue;
    const Buffer& scale = program.at(scaleId);
    const std::optional<Block> block = findBlock(codes, scale);
    if (!block)
      return fail("{}: operand '{}' is buffer '{}' {}, expected the shape of '{}' {} with {}", where,
                  operand.name, scale.name, shapeText(scale.type, scale.shape), codes.name,
                  shapeText(codes.type, codes.shape),
                  codes.type == DType::kF8_E4M3
                      ? fmt::format("a number for each {0} by {0} of its last dimensions", kFp8Square)
                      : "dimensions that divide it");
    if (!canScale(scale.type, codes.type) || (hasRowsOfCodes && !isNumber(scale.type)))
      return fail(
          "{}: operand '{}' is buffer '{}' of type {}, expected F32{} beside buffer '{}' of type {}{}", where,
          operand.name, scale.name, dtypeName(scale.type),
          codesPerElement(codes.type) == 2 ? ", F16 or BF16" : "", codes.name, dtypeName(codes.type),
          hasRowsOfCodes ? ", which rows of codes multiply" : "");
    if (!hasRowsOfCodes) continue;
    if (Status status = checkSums(family, codes.type, *block, where); !status) return status;
  }
  if (Status status = checkRowsOfCodes(program, family, where); !status) return status;
  if (Status status = checkPairs(program, family, where); !status) return status;
  if (Status status = checkFactor(program, family, where); !status) return status;
  return checkZeros(program, family, where);
}

// What passes through an op is both read and written, or neither; a dispatch sends something.
Status checkPairedOptions(const Family& family, const std::string& where) {
  if (family.writes.empty()) return fail("{} writes nothing", where);
  const OpInfo& op = findInfo(family.op);
  const Operands ids = findOperands(family);
  for (const OperandInfo& out : op.writes) {
    if (out.with == nullptr) continue;
    const bool isRead = !(ids.*out.with).none();
    if (isRead != (ids.*out.id).none()) continue;
    const std::string_view in = op.find(out.with)->name;
    return fail("{} has {} without {}", where, isRead ? in : out.name, isRead ? out.name : in);
  }
  return {};
}

// A gradient that is added to must be a tensor of the caller: regions have no defined content before.
Status checkAccumulation(const TaskProgram& program, const Family& family, const std::string& where) {
  if (!accumulates(family)) return {};
  const Buffer& gradient = program.at(findBuffer(family, &Operands::c));
  if (gradient.role == Role::kOutput) return {};
  return fail("{} accumulates into buffer '{}', which is not an output", where, gradient.name);
}

// Ops with an activation have a valid one and a valid limit; other ops have neither.
Status checkActivation(const Family& family, const std::string& where) {
  const Tiling& t = family.tiling;
  if (t.activation > ActivationKind::MAX)
    return fail("{}: activation {} is not known", where, static_cast<int>(t.activation));
  const bool used = findInfo(family.op).usesActivation();
  if (!used && t.activation != ActivationKind{})
    return fail("{}: field activation of the tiling is {}, but this op does not use it", where,
                text::word(t.activation));
  const float limit = toFloat(t.limit);
  const bool clamps = used && findInfo(t.activation).hasLimit;
  if (clamps ? limit > 0 && limit < std::numeric_limits<float>::infinity() : t.limit.bits == 0) return {};
  return fail("{}: the limit of the activation is {}, expected {}", where, limit,
              clamps ? "a positive number" : "none for this kind");
}

// The gradient of a row's weight is one sum over all columns, so one task must have all of them.
Status checkWholeRows(const Family& family, const std::string& where) {
  if (!needsWholeRows(family) || family.tiles == 1) return {};
  return fail("{} has {} tiles, expected 1: it computes the gradient of the rows' weights", where,
              family.tiles);
}

// Cube cores only multiply; vector cores do everything else. A fused family needs both in one core.
Status checkCore(const TaskProgram& program, const Family& family, const std::string& where) {
  const std::string kind = text::word(family.core);
  if (program.coreCount(family.core) == 0)
    return fail("{} is for {} cores, but the program has none", where, kind);
  const CoreKind needed = findInfo(family.op).core;
  if (family.core == CoreKind::kUnified || family.core == needed) return {};
  const std::string own = needed == CoreKind::kUnified ? "unified" : text::word(needed) + " or unified";
  return fail("{} is for {} cores, but its op {} runs on {} cores", where, kind, text::word(family.op), own);
}

Status checkLinks(const TaskProgram& program, const Family& family, const std::vector<EventId>& links,
                  const char* verb, const std::string& where) {
  if (links.size() > kMaxLinks)
    return fail("{} {} {} events, expected at most {}", where, verb, links.size(), kMaxLinks);
  for (EventId id : links) {
    if (!inRange(id, program.events))
      return fail("{} {} event {}, but the program declares {} events", where, verb, id.value,
                  program.events.size());
    if (program.at(id).entry != family.entry)
      return fail("{} {} event '{}', which is not of its entry", where, verb, program.at(id).name);
  }
  if (links.size() > 1 && links[0] == links[1])
    return fail("{} {} event '{}' twice", where, verb, program.at(links[0]).name);
  return {};
}

// Each rank of a group has its part of the results, and what is to be added is added once.
Status checkShardings(const TaskProgram& program, const Family& family, const std::string& where) {
  if (program.mesh.tp == 1) return {};
  const Expected<std::vector<Sharding>> written = deriveShardings(program, family);
  if (!written) return fail("{}: {}", where, written.error().message);
  for (size_t i = 0; i < written->size(); ++i) {
    const BufferId id = bufferAt(family.writes, i);
    if (!id) continue;
    const Buffer& buffer = program.at(id);
    if (buffer.sharding != (*written)[i])
      return fail("{}: operand '{}' is buffer '{}', which is {}, expected {}", where,
                  findInfo(family.op).writes[i].name, buffer.name, text::word(buffer.sharding),
                  text::word((*written)[i]));
  }
  return {};
}

Status checkFamily(const TaskProgram& program, FamilyId id) {
  const Family& family = program.at(id);
  if (family.name.empty()) return fail("family {} has no name", id.value);
  if (!inRange(family.entry, program.entries))
    return fail("family '{}' belongs to entry {}, but the program declares {} entries", family.name,
                family.entry.value, program.entries.size());
  const std::string where = fullName(program, id);
  if (family.op > OpKind::MAX) return fail("{}: op {} is not known", where, static_cast<int>(family.op));
  if (family.core > CoreKind::MAX)
    return fail("{}: core kind {} is not known", where, static_cast<int>(family.core));
  if (Status status = checkCore(program, family, where); !status) return status;
  if (!inRange(family.space, program.spaces))
    return fail("{} is in space {}, but the program declares {} spaces", where, family.space.value,
                program.spaces.size());
  if (Status status = checkTiling(program, family, where); !status) return status;
  if (Status status = checkActivation(family, where); !status) return status;

  const SpaceKind own = spaceKindIn(program, id), needed = spaceFor(family, own);
  if (own != needed)
    return fail("{} is in space {}, but its op needs {}", where, fullName(own), fullName(needed));
  if (const int64_t tiles = countTiles(family.op, family.tiling); family.tiles != tiles)
    return fail("{} has {} tiles, but its tiling gives {}", where, family.tiles, tiles);
  const OpInfo& op = findInfo(family.op);
  Status status = checkOperands(program, family, family.reads, op.reads, "operands that it reads", where);
  if (!status) return status;
  status = checkOperands(program, family, family.writes, op.writes, "operands that it writes", where);
  if (!status) return status;
  for (const auto check : {checkTypes, checkScales, checkRoundings, checkCodes})
    if (status = check(program, family, where); !status) return status;
  status = checkLinks(program, family, family.waits, "waits for", where);
  if (!status) return status;
  status = checkLinks(program, family, family.signals, "signals", where);
  if (!status) return status;
  for (const auto check : {checkWholeRows, checkPairedOptions})
    if (status = check(family, where); !status) return status;
  if (status = checkShardings(program, family, where); !status) return status;
  return checkAccumulation(program, family, where);
}

}  // namespace

Status checkFamilies(const TaskProgram& program) {
  std::set<std::pair<EntryId, std::string_view>> names;
  for (uint32_t i = 0; i < program.families.size(); ++i) {
    if (Status status = checkFamily(program, FamilyId{i}); !status) return status;
    const Family& family = program.families[i];
    if (!names.insert({family.entry, family.name}).second)
      return fail("two families of entry '{}' have the name '{}'", program.at(family.entry).name,
                  family.name);
  }
  return {};
}

}  // namespace sluice::verify_parts
