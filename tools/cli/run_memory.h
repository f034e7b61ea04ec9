// Checks whether the ranks of a run fit into memory, before any memory is used.
#pragma once

#include "runtime/base/memory_left.h"
#include "tools/cli/run_job.h"

namespace sluice::tools {

// Lower bounds for all ranks together: the bytes of their tensors, and of the memory of their steps. If
// inputs are read from files, no tokens are counted.
struct RunMemory {
  double inputs = 0, outputs = 0, steps = 0;  // bytes
};
RunMemory estimateMemory(const Job& job);

// Error: more than is left, with the numbers.
Status checkMemory(const Job& job, const MemoryLeft& left = memoryLeft());

}  // namespace sluice::tools
