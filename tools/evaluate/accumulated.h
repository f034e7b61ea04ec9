// Which gradients are added to what their tensors hold.
#pragma once

#include <algorithm>

#include "ops/gmm_weight_grad/tiling.h"
#include "runtime/program/program.h"

namespace sluice::tools {

// Whether a family adds to what the buffer holds instead of writing it.
inline bool isAccumulated(const TaskProgram& program, BufferId id) {
  return std::any_of(program.families.begin(), program.families.end(), [&](const Family& family) {
    return family.op == OpKind::kGmmWeightGrad && ops::weightGradAccumulates(family.tiling) &&
           family.writes[0] == id;
  });
}

}  // namespace sluice::tools
