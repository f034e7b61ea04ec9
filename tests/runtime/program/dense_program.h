// Programs of format 1.1 built without the compiler, for the proofs of verify(): a routed layer with a dense
// branch beside it, whose gradient is scaled before it is sent.
//
//   plain   gate_up = rows x + alpha (rows a) b, added in rows; the dense branch unfused
//   fused   gmm_activation and gmm_activation_grad in rows and in tokens instead
//
// Entries `forward` and `backward`; backward uses the routing of forward. Weight gradients of the dense
// branch are in space once, one of them bf16. Every program passes verify() where the shape keeps the limits
// of program.h and slotRows is a multiple of 16.
#pragma once

#include "runtime/program/program.h"
#include "tests/testing/moe_program.h"

namespace sluice {

TaskProgram buildDenseProgram(const MoeShape& shape, bool fused);

}  // namespace sluice
