// A layer with everything that the plain one of moe_program.h lacks: a dense branch beside the routed one,
// low-rank adapters, sums, factors, weight gradients of tokens and in bf16. Built without the compiler.
//
// With xs = 1.25 x, dispatched, and e the expert of a row:
//   routed: gate_up = xs W[e] + 0.5 (xs A[e]) B[e], act = swiglu(gate_up), summed act D[e] by token
//   shared: shared_gate_up = 0.75 x SW, shared_act = geglu(shared_gate_up)
//   y = routed + shared_act SD
// Entry `backward` has the gradients of all of x, A, B, SW and SD; W and D are frozen. Those of B and SW are
// bf16. It has space once, and dispatch of `forward` waits for all slots of tokens.
#pragma once

#include "tests/testing/moe_program.h"

namespace sluice {

struct WideShape {
  MoeShape base;            // forwardOnly is not used; fused: the shared branch
  int shared = 20;          // width of the shared branch
  int rank = 6;             // of the adapters
  bool accumulate = false;  // adds to all weight gradients
};

TaskProgram buildWideProgram(const WideShape& shape);

}  // namespace sluice
