// The bytes and FLOPs of a family's tasks in one step of this rank, as formulas.
//
// Bytes count every operand once, as if repeated reads of a task came from a cache. A dispatch reads the row
// of a token once for every expert it goes to. FLOPs count an addition, a multiplication, a maximum, an
// exponential or a tanh of the op's formula as one each; copies have none. Free function.
#pragma once

#include "compiler/analysis/memory_lifetimes.h"
#include "runtime/program/program.h"

namespace sluice {

struct FamilyWork {
  Formula read;     // bytes
  Formula written;  // bytes
  Formula flops;
};

FamilyWork workOf(const TaskProgram& program, const Family& family);

// The tasks of a family in a balanced step: a rank with most experts and max_tokens tokens receives as many
// rows as it sends, every expert as many as the others.
int64_t tasksInBalancedStep(const TaskProgram& program, const Family& family);

}  // namespace sluice
