// What the persistent kernel of ops/gpu has no code for.
#pragma once

#include <optional>

#include "runtime/abi/gpu/row_plan.h"
#include "runtime/exec/plan.h"
#include "runtime/program/op_table.h"

namespace sluice {

// The kernel of an op that works on rows by themselves; none if there is none.
std::optional<gpu::RowOp> findRowOp(OpKind op);

// Error: names a family that it cannot run, and why.
Status checkForGpu(const Plan& plan);

}  // namespace sluice
