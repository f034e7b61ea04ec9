#include "compiler/report/family_work.h"

#include <array>

namespace sluice {
namespace {

constexpr uint32_t kKindBits = 3;        // of the flags of all activations: the kind
constexpr uint32_t kAccumulateFlag = 1;  // of a weight gradient
constexpr size_t kKinds = 4;

// Operations for each element of the result, by kind: swiglu, swiglu_clamp, geglu, reglu.
constexpr std::array<int64_t, kKinds> kActivationFlops = {5, 8, 10, 2};
constexpr std::array<int64_t, kKinds> kActivationGradFlops = {12, 15, 21, 4};
constexpr int64_t kRowWeightFlops = 2;      // gate and up gradient, times the weight
constexpr int64_t kRowWeightGradFlops = 3;  // the activation again, and its product with the gradient

Formula bytesOf(const Buffer& buffer) {
  Formula bytes;
  bytes.at(extentOf(buffer)) = bytesPerUnit(buffer);
  return bytes;
}

bool has(const std::vector<BufferId>& operands, size_t index) {
  return index < operands.size() && operands[index];
}

// Operations of one row, or token.
int64_t flopsOfRow(const Family& family) {
  const Tiling& tiling = family.tiling;
  const int64_t n = tiling.n, k = tiling.k;
  const size_t kind = tiling.flags & kKindBits;
  const auto grad = [&](size_t weights) {
    return kActivationGradFlops[kind] + (has(family.reads, weights) ? kRowWeightFlops : 0) +
           (has(family.writes, 1) ? kRowWeightGradFlops : 0);
  };
  switch (family.op) {
    case OpKind::kGmm:
      return 2 * n * k;
    case OpKind::kGmmWeightGrad:
      return 2 * int64_t{tiling.m} * n;
    case OpKind::kActivation:
      return n * kActivationFlops[kind];
    case OpKind::kActivationGrad:
      return n * grad(2);
    case OpKind::kGmmActivation:
      return 4 * n * k + n * kActivationFlops[kind];
    case OpKind::kGmmActivationGrad:
      return 2 * n * k + n * grad(3);
    case OpKind::kCombineSum:
      return has(family.reads, 1) ? 2 * n : n;
    case OpKind::kAdd:
    case OpKind::kScale:
      return n;
    case OpKind::kDispatch:
    case OpKind::kCombineReturn:
      return 0;
  }
  return 0;
}

int64_t ceilDivide(int64_t length, int64_t part) { return (length + part - 1) / part; }

// Of rows or of groups.
int64_t rowSlots(const TaskProgram& program, SpaceKind kind) {
  int64_t slotRows = 1;
  for (const Space& space : program.spaces)
    if (space.kind == kind) slotRows = space.slotSize;
  const int64_t rows = int64_t{program.maxTokens} * program.topK, experts = program.mostExperts();
  return experts * ceilDivide(ceilDivide(rows, experts), slotRows);
}

int64_t liveSlots(const TaskProgram& program, const Space& space) {
  switch (space.kind) {
    case SpaceKind::kTokens:
      return ceilDivide(program.maxTokens, space.slotSize);
    case SpaceKind::kRows:
      return rowSlots(program, SpaceKind::kRows);
    case SpaceKind::kGroups:
      return rowSlots(program, SpaceKind::kGroups);
    case SpaceKind::kSends:
    case SpaceKind::kReturns:
      return rowSlots(program, SpaceKind::kRows) * program.ranks;
    case SpaceKind::kExperts:
      return program.mostExperts();
    case SpaceKind::kOnce:
      return 1;
  }
  return 0;
}

}  // namespace

FamilyWork workOf(const TaskProgram& program, const Family& family) {
  FamilyWork work;
  for (BufferId b : family.reads)
    if (b) work.read += bytesOf(program.at(b));
  for (BufferId b : family.writes)
    if (b) work.written += bytesOf(program.at(b));
  const SpaceKind space = program.at(family.space).kind;
  if (family.op == OpKind::kDispatch) {
    // Rows are told by pairs here, and by rows where they arrive.
    work.read = {0, 0, 0, work.read.tokens};
    if (has(family.reads, 1)) {
      const int64_t weights = bytesPerUnit(program.at(family.reads[1]));
      work.read.pairs += weights / program.topK - weights;
    }
    work.written = {0, 0, 0, work.written.rows};
  } else if (family.op == OpKind::kCombineReturn) {
    work.written = {0, 0, work.written.pairs, 0};
  } else if (family.op == OpKind::kGmmWeightGrad && (family.tiling.flags & kAccumulateFlag) != 0) {
    work.read += work.written;
  }
  const Extent extent = family.op == OpKind::kCombineSum                           ? Extent::kPairs
                        : space == SpaceKind::kTokens || space == SpaceKind::kOnce ? Extent::kTokens
                                                                                   : Extent::kRows;
  work.flops.at(extent) = flopsOfRow(family);
  return work;
}

int64_t tasksInBalancedStep(const TaskProgram& program, const Family& family) {
  return liveSlots(program, program.at(family.space)) * family.tiles;
}

}  // namespace sluice
