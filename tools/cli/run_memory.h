// Whether the ranks of a run fit into memory, before any is used.
#pragma once

#include "runtime/base/memory_left.h"
#include "tools/cli/run_job.h"

namespace sluice::tools {

// Of all ranks together, at least: what their tensors and the memory of their steps take. Where inputs are
// read, no tokens are counted.
struct RunMemory {
  double inputs = 0, outputs = 0, steps = 0;  // bytes
};
RunMemory memoryOf(const Job& job);

// Error: that is more than is left, with the numbers.
Status checkMemory(const Job& job, const MemoryLeft& left = memoryLeft());

}  // namespace sluice::tools
