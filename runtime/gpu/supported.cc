// What the persistent kernel of ops/gpu has no code for.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/gpu/translator.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

Error cannot(const Family& family, const std::string& why) {
  return Error{fmt::format("family '{}' cannot run on a GPU: {}", family.name, why)};
}

Status checkProduct(const TaskProgram& program, const Family& family) {
  const Operands ids = findOperands(family);
  for (const OperandName factor : kFactors)
    if (const DType type = program.at(ids.*factor).type; type != DType::kBF16)
      return cannot(family, fmt::format("it multiplies {}, expected bf16", dtypeName(type)));
  if (roundsFactors(family.tiling)) return cannot(family, "it rounds what it multiplies");
  if (findInfo(family.op).isSum() && ids.rowWeights)
    return cannot(family,
                  "it scales the rows that it multiplies; compile the program again, so that others do");
  if (!findInfo(family.op).isSum() && ids.c && program.at(ids.c).type != DType::kBF16)
    return cannot(family, fmt::format("its result is {}, expected bf16", dtypeName(program.at(ids.c).type)));
  return {};
}

}  // namespace

std::optional<gpu::RowOp> findRowOp(OpKind op) {
  switch (op) {
    case OpKind::kActivation:
      return gpu::RowOp::kActivation;
    case OpKind::kActivationGrad:
      return gpu::RowOp::kActivationGrad;
    case OpKind::kAdd:
      return gpu::RowOp::kAdd;
    case OpKind::kScale:
      return gpu::RowOp::kScale;
    case OpKind::kColumnSum:
      return gpu::RowOp::kColumnSum;
    case OpKind::kRowDot:
      return gpu::RowOp::kRowDot;
    default:
      return {};
  }
}

Status checkForGpu(const Plan& plan) {
  const TaskProgram& program = plan.program();
  for (const Family& family : program.families) {
    const OpInfo& op = findInfo(family.op);
    if (!op.hasFactors()) {
      const bool isOfRows = op.vector != VectorWork::kNone && op.vector != VectorWork::kWeightedSum;
      if (isOfRows && !findRowOp(family.op))
        return cannot(family, fmt::format("there is no kernel for {}", text::word(family.op)));
      continue;
    }
    if (Status can = checkProduct(program, family); !can) return can;
  }
  for (uint32_t entry = 0; entry < program.entries.size(); ++entry)
    if (const size_t lanes = plan.at(EntryId{entry}).lanes.size(); lanes > gpu::kMaxLanes)
      return Error{fmt::format("entry '{}' has {} lanes, expected at most {} on a GPU",
                               program.entries[entry].name, lanes, gpu::kMaxLanes)};
  return {};
}

}  // namespace sluice
