// The work of one task: floating-point operations of its products, and bytes that it reads and writes.
//
// Free functions on values; any thread.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

struct TaskWork {
  double flops = 0;  // 2 per multiplication and addition; of matrix products only
  double bytes = 0;  // each operand once, whatever is in the caches
};

// `rows`: the rows of the task's slot or piece, the tokens of its slot, or all rows of its expert or rank. A
// sum over the pairs of a token counts top_k of them.
TaskWork countWork(const TaskProgram& program, FamilyId family, int32_t tile, int64_t rows);

}  // namespace sluice
