#include "compiler/analysis/cores.h"

namespace sluice {

CoreKind separateCoreOf(OpKind op) {
  switch (op) {
    case OpKind::kGmm:
    case OpKind::kGmmWeightGrad:
      return CoreKind::kCube;
    case OpKind::kGmmActivation:
    case OpKind::kGmmActivationGrad:
      return CoreKind::kUnified;
    case OpKind::kDispatch:
    case OpKind::kActivation:
    case OpKind::kActivationGrad:
    case OpKind::kCombineReturn:
    case OpKind::kCombineSum:
    case OpKind::kAdd:
    case OpKind::kScale:
      return CoreKind::kVector;
  }
  return CoreKind::kVector;
}

CoreRange coresFor(const TaskProgram& program, const Family& family, int32_t communication) {
  const int32_t cores = program.coresOf(family.core);
  if (family.core != CoreKind::kVector || communication <= 0 || communication >= cores) return {0, cores};
  const SpaceKind kind = program.at(family.space).kind;
  const bool sends = kind == SpaceKind::kSends || kind == SpaceKind::kReturns;
  return sends ? CoreRange{0, communication} : CoreRange{communication, cores - communication};
}

}  // namespace sluice
