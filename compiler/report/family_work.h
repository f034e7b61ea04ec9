// The bytes and FLOPs of a family's tasks in one step of this rank, as formulas.
//
// Bytes count every operand once, as if repeated reads within a task came from a cache. A dispatch reads the
// row of a token once for every expert that the token goes to. FLOPs count an addition, a multiplication, a
// maximum, an exponential or a tanh of the op's formula as one each; copies count none. Free function.
#pragma once

#include "compiler/analysis/memory_lifetimes.h"
#include "runtime/program/program.h"

namespace sluice {

struct FamilyWork {
  Formula read;     // bytes
  Formula written;  // bytes
  Formula flops;
};

FamilyWork countWork(const TaskProgram& program, const Family& family);

// The number of tasks of a family in a balanced step: a rank with the most experts and max_tokens tokens
// receives as many rows as it sends, and all experts get equally many.
int64_t tasksInBalancedStep(const TaskProgram& program, const Family& family);

}  // namespace sluice
