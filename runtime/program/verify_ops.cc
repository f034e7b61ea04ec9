// Families: their ids, and that tiling, tile count and operands are those of their op (table in program.h).
#include <cmath>
#include <limits>
#include <set>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

constexpr uint32_t kTransposed = 1;       // Tiling::flags of a gmm
constexpr uint32_t kFusedTransposed = 4;  // of a gmm with an activation in it
constexpr uint32_t kAccumulate = 1;       // Tiling::flags of a weight gradient
// Tiling::flags of an activation: its kind, and the limit of kind clamp as bf16.
constexpr uint32_t kActivationKind = 3;
constexpr uint32_t kActivationClamp = 1;
constexpr uint32_t kActivationLimit = 0xffff0000u;
constexpr OpKind kLastOp = OpKind::kGmmActivationGrad;

struct Operand {
  std::string_view name;
  bool optional;
  DType type;
  std::vector<Dim> shape;
};

// What an op demands, its sizes taken from the tiling.
struct Signature {
  SpaceKind space;
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  int64_t tiles;
};

constexpr Dim kT{Extent::kTokens, 0};
constexpr Dim kR{Extent::kRows, 0};
constexpr Dim kP{Extent::kPairs, 0};
constexpr Dim fixed(int64_t size) { return {Extent::kFixed, size}; }

Operand bf16(std::string_view name, std::vector<Dim> shape) { return {name, false, DType::kBF16, shape}; }
Operand f32(std::string_view name, std::vector<Dim> shape) { return {name, true, DType::kF32, shape}; }

// Which fields of the tiling an op reads; all others are 0.
struct UsedFields {
  bool m, k, tileM, tileN;
  uint32_t flags;
  bool alpha = false;
};

UsedFields usedFields(OpKind op) {
  switch (op) {
    case OpKind::kGmm:
      return {false, true, false, true, kTransposed, true};
    case OpKind::kGmmWeightGrad:
      return {true, false, true, true, kAccumulate, true};
    case OpKind::kActivation:
    case OpKind::kActivationGrad:
      return {false, false, false, false, kActivationKind | kActivationLimit};
    case OpKind::kCombineSum:
      return {false, true, false, false, 0};
    case OpKind::kScale:
      return {false, false, false, false, 0, true};
    case OpKind::kGmmActivation:
    case OpKind::kGmmActivationGrad:
      return {false, true, false, true, kActivationKind | kActivationLimit | kFusedTransposed, true};
    default:
      return {false, false, false, false, 0};
  }
}

// The space of an op that works on rows, by slot or by group, or on tokens.
SpaceKind spaceOfRows(const TaskProgram& program, const Family& family) {
  const SpaceKind own = program.at(family.space).kind;
  return own == SpaceKind::kTokens || own == SpaceKind::kGroups ? own : SpaceKind::kRows;
}

Signature signatureOf(const TaskProgram& program, const Family& family) {
  const Tiling& t = family.tiling;
  const SpaceKind own = program.at(family.space).kind;
  const bool dense = own == SpaceKind::kTokens || own == SpaceKind::kOnce;
  const Dim e = program.expertDim(), topK = fixed(program.topK), x = dense ? kT : kR;
  const Dim m = fixed(t.m), n = fixed(t.n), n2 = fixed(int64_t{2} * t.n), k = fixed(t.k);
  const SpaceKind rows = spaceOfRows(program, family);
  const auto pieces = [](int64_t length, int64_t tile) { return (length + tile - 1) / tile; };
  const auto ofExperts = [&](Dim first, Dim second) {
    return dense ? std::vector<Dim>{first, second} : std::vector<Dim>{e, first, second};
  };
  const auto weight = [&](uint32_t transposedFlag, Dim columns) {
    const bool transposed = (t.flags & transposedFlag) != 0;
    return bf16("b", transposed ? ofExperts(columns, k) : ofExperts(k, columns));
  };
  switch (family.op) {
    case OpKind::kDispatch:
      return {SpaceKind::kSends,
              {bf16("tokens", {kT, n}), f32("weights", {kT, topK})},
              {bf16("rows", {kR, n}), f32("row weights", {kR})},
              1};
    case OpKind::kGmm:
      return {rows, {bf16("a", {x, k}), weight(kTransposed, n)}, {bf16("c", {x, n})}, pieces(t.n, t.tileN)};
    case OpKind::kGmmWeightGrad: {
      // of either type
      const BufferId grad = family.writes.empty() ? BufferId{} : family.writes[0];
      const bool narrow = inRange(grad, program.buffers) && program.at(grad).type == DType::kBF16;
      return {dense ? SpaceKind::kOnce : SpaceKind::kExperts,
              {bf16("a", {x, m}), bf16("b", {x, n}), f32("row scale", {x})},
              {Operand{"c", false, narrow ? DType::kBF16 : DType::kF32, ofExperts(m, n)}},
              pieces(t.m, t.tileM) * pieces(t.n, t.tileN)};
    }
    case OpKind::kActivation:
      return {rows, {bf16("gate_up", {x, n2})}, {bf16("act", {x, n})}, 1};
    case OpKind::kActivationGrad:
      return {rows,
              {bf16("act_grad", {x, n}), bf16("gate_up", {x, n2}), f32("row weights", {x})},
              {bf16("gate_up_grad", {x, n2}), f32("row weight grad", {x})},
              1};
    case OpKind::kCombineReturn:
      return {SpaceKind::kReturns,
              {bf16("rows", {kR, n}), f32("row scalars", {kR})},
              {bf16("returned", {kP, n}), f32("returned scalars", {kP})},
              1};
    case OpKind::kCombineSum:
      return {SpaceKind::kTokens,
              {bf16("returned", {kP, n}), f32("weights", {kT, topK}), f32("returned scalars", {kP})},
              {bf16("tokens", {kT, n}), f32("token scalars", {kT, topK})},
              1};
    case OpKind::kAdd:
      return {rows, {bf16("a", {x, n}), bf16("b", {x, n})}, {bf16("c", {x, n})}, 1};
    case OpKind::kScale:
      return {rows, {bf16("a", {x, n})}, {bf16("c", {x, n})}, 1};
    case OpKind::kGmmActivation: {
      Operand gateUp = bf16("gate_up", {x, n2});
      gateUp.optional = true;
      return {rows,
              {bf16("a", {x, k}), weight(kFusedTransposed, n2)},
              {bf16("act", {x, n}), gateUp},
              pieces(t.n, t.tileN)};
    }
    case OpKind::kGmmActivationGrad:
      return {
          rows,
          {bf16("a", {x, k}), weight(kFusedTransposed, n), bf16("gate_up", {x, n2}), f32("row weights", {x})},
          {bf16("gate_up_grad", {x, n2}), f32("row weight grad", {x})},
          pieces(t.n, t.tileN)};
  }
  return {};
}

Status checkTiling(const TaskProgram& program, const Family& family, const std::string& where) {
  struct Field {
    std::string_view name;
    int64_t value;
    bool used;
  };
  const Tiling& t = family.tiling;
  const UsedFields used = usedFields(family.op);
  for (const auto& [name, value, needed] :
       {Field{"m", t.m, used.m}, Field{"n", t.n, true}, Field{"k", t.k, used.k},
        Field{"tileM", t.tileM, used.tileM}, Field{"tileN", t.tileN, used.tileN},
        Field{"reserved", t.reserved, false}}) {
    if (needed && (value < 1 || value > kMaxDim))
      return fail("{}: field {} of the tiling is {}, expected 1 to {}", where, name, value, kMaxDim);
    if (!needed && value != 0)
      return fail("{}: field {} of the tiling is {}, but this op does not use it", where, name, value);
  }
  if (!used.alpha ? t.alpha != 0 : !std::isfinite(t.alpha))
    return fail("{}: field alpha of the tiling is {}, expected {}", where, t.alpha,
                used.alpha ? "a finite number" : "0, for this op does not use it");
  if ((t.flags & ~used.flags) != 0)
    return fail("{}: flags of the tiling are {:#x}, expected {:#x} at most", where, t.flags, used.flags);
  if (family.op == OpKind::kCombineSum && t.k != program.topK)
    return fail("{}: field k of the tiling is {}, but top_k is {}", where, t.k, program.topK);
  return {};
}

// Kernels read and write scalars of rows, tokens and pairs as one array; other floats are of whole matrices.
Status checkGaps(const TaskProgram& program, const Buffer& buffer, const Operand& operand,
                 const std::string& where) {
  const Extent extent = buffer.shape[0].extent;
  if (operand.type != DType::kF32 || !buffer.region) return {};
  if (extent == Extent::kFixed || extent == Extent::kExperts) return {};
  const int64_t bytes = dtypeBytes(DType::kF32) * (buffer.shape.size() > 1 ? buffer.shape[1].size : 1);
  const Region& region = program.at(buffer.region);
  if (region.stride == bytes) return {};
  return fail("{}: operand '{}' is buffer '{}' in region '{}' of stride {}, expected {}: no gaps", where,
              operand.name, buffer.name, region.name, region.stride, bytes);
}

Status checkOperands(const TaskProgram& program, const std::vector<BufferId>& ids,
                     const std::vector<Operand>& operands, std::string_view side, const std::string& where) {
  if (ids.size() != operands.size())
    return fail("{} has {} {}, expected {}", where, ids.size(), side, operands.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const Operand& operand = operands[i];
    if (ids[i].none() && operand.optional) continue;
    if (ids[i].none()) return fail("{}: operand '{}' is absent", where, operand.name);
    if (!inRange(ids[i], program.buffers))
      return fail("{}: operand '{}' is buffer {}, but the program declares {} buffers", where, operand.name,
                  ids[i].value, program.buffers.size());
    const Buffer& buffer = program.at(ids[i]);
    if (buffer.type != operand.type || buffer.shape != operand.shape)
      return fail("{}: operand '{}' is buffer '{}' {}, expected {}", where, operand.name, buffer.name,
                  shapeText(buffer.type, buffer.shape), shapeText(operand.type, operand.shape));
    if (Status status = checkGaps(program, buffer, operand, where); !status) return status;
  }
  return {};
}

// Scalars that go through an op come in at one end and out at the other, or not at all.
Status checkPairedOptions(const Family& family, const std::string& where) {
  const auto check = [&](size_t read, size_t write, std::string_view in, std::string_view out) -> Status {
    if (family.reads[read].none() == family.writes[write].none()) return {};
    return fail("{} has {} without {}", where, family.reads[read] ? in : out, family.reads[read] ? out : in);
  };
  switch (family.op) {
    case OpKind::kDispatch:
      return check(1, 1, "weights", "row weights");
    case OpKind::kCombineReturn:
      return check(1, 1, "row scalars", "returned scalars");
    case OpKind::kCombineSum:
      return check(2, 1, "returned scalars", "token scalars");
    default:
      return {};
  }
}

// What is added to must have a content: that of the caller's tensor. Regions hold what was there before.
Status checkAccumulation(const TaskProgram& program, const Family& family, const std::string& where) {
  if (family.op != OpKind::kGmmWeightGrad || (family.tiling.flags & kAccumulate) == 0) return {};
  const Buffer& gradient = program.at(family.writes[0]);
  if (gradient.role == Role::kOutput) return {};
  return fail("{} accumulates into buffer '{}', which is not an output", where, gradient.name);
}

Status checkLimit(const Family& family, const std::string& where) {
  if (family.op != OpKind::kActivation && family.op != OpKind::kActivationGrad &&
      family.op != OpKind::kGmmActivation && family.op != OpKind::kGmmActivationGrad)
    return {};
  const uint32_t flags = family.tiling.flags;
  const float limit = toFloat(BFloat16{static_cast<uint16_t>(flags >> 16)});
  const bool clamps = (flags & kActivationKind) == kActivationClamp;
  if (clamps ? limit > 0 && limit < std::numeric_limits<float>::infinity() : (flags >> 16) == 0) return {};
  return fail("{}: the limit of the activation is {}, expected {}", where, limit,
              clamps ? "a positive number" : "none for this kind");
}

// The gradient of a row's weight is one sum over all columns: it takes a task that has them all.
Status checkWholeRows(const Family& family, const std::string& where) {
  if (family.op != OpKind::kGmmActivationGrad || family.writes[1].none() || family.tiles == 1) return {};
  return fail("{} has {} tiles, expected 1: it computes the gradient of the rows' weights", where,
              family.tiles);
}

// Cube cores multiply and do nothing else; vector cores do all but that. A fused family needs both in one.
Status checkCore(const TaskProgram& program, const Family& family, const std::string& where) {
  const std::string kind = text::word(family.core);
  if (program.coresOf(family.core) == 0)
    return fail("{} is for {} cores, but the program has none", where, kind);
  const bool product = family.op == OpKind::kGmm || family.op == OpKind::kGmmWeightGrad;
  const bool fused = family.op == OpKind::kGmmActivation || family.op == OpKind::kGmmActivationGrad;
  const bool fits =
      family.core == CoreKind::kUnified || (!fused && product == (family.core == CoreKind::kCube));
  if (fits) return {};
  return fail("{} is for {} cores, but its op {} runs on {} cores", where, kind, text::word(family.op),
              fused     ? "unified"
              : product ? "cube or unified"
                        : "vector or unified");
}

Status checkFamily(const TaskProgram& program, FamilyId id) {
  const Family& family = program.at(id);
  if (family.name.empty()) return fail("family {} has no name", id.value);
  if (!inRange(family.entry, program.entries))
    return fail("family '{}' belongs to entry {}, but the program declares {} entries", family.name,
                family.entry.value, program.entries.size());
  const std::string where = nameOf(program, id);
  if (static_cast<uint32_t>(family.op) > static_cast<uint32_t>(kLastOp))
    return fail("{}: op {} is not known", where, static_cast<int>(family.op));
  if (static_cast<uint32_t>(family.core) > static_cast<uint32_t>(CoreKind::kVector))
    return fail("{}: core kind {} is not known", where, static_cast<int>(family.core));
  if (Status status = checkCore(program, family, where); !status) return status;
  if (!inRange(family.space, program.spaces))
    return fail("{} is in space {}, but the program declares {} spaces", where, family.space.value,
                program.spaces.size());
  if (Status status = checkTiling(program, family, where); !status) return status;

  const Signature signature = signatureOf(program, family);
  if (kindOf(program, id) != signature.space)
    return fail("{} is in space {}, but its op needs {}", where, nameOf(kindOf(program, id)),
                nameOf(signature.space));
  if (family.tiles != signature.tiles)
    return fail("{} has {} tiles, but its tiling gives {}", where, family.tiles, signature.tiles);
  Status status = checkOperands(program, family.reads, signature.reads, "operands that it reads", where);
  if (!status) return status;
  status = checkOperands(program, family.writes, signature.writes, "operands that it writes", where);
  if (!status) return status;
  status = checkAccumulation(program, family, where);
  if (!status) return status;
  status = checkLimit(family, where);
  if (!status) return status;
  status = checkWholeRows(family, where);
  if (!status) return status;
  return checkPairedOptions(family, where);
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
