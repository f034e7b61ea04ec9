// CpuStep: a step with what CPU threads add to it: the kernels, and packed weights.
#pragma once

#include "ops/abi/kernels.h"
#include "runtime/exec/step.h"

namespace sluice {

class WeightPanels;

// A value that refers to an executor's own; immutable while tasks run.
struct CpuStep : Step {
  const ops::KernelSet* kernelSet = nullptr;
  WeightPanels* panels = nullptr;  // null where no weight is packed

  const ops::KernelSet& kernels() const { return *kernelSet; }
};

// Bytes of scratch memory that a worker needs for any task of the plan.
size_t scratchBytesOf(const Plan& plan, const ops::KernelSet& kernels);

// Runs the task's kernel where it is of the step's work, then signals. `scratch` has scratchBytesOf(),
// 64-byte aligned.
void runTask(const CpuStep& step, const Task& task, std::byte* scratch);

}  // namespace sluice
