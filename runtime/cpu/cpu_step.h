// CpuStep: a step, with the kernels and packed weights that CPU threads add to it.
#pragma once

#include "runtime/abi/kernels.h"
#include "runtime/exec/step.h"

namespace sluice {

class WeightPanels;

// A value that refers to objects of an executor; immutable while tasks run.
struct CpuStep : Step {
  const ops::KernelSet* kernelSet = nullptr;
  WeightPanels* panels = nullptr;  // null if no weight is packed

  const ops::KernelSet& kernels() const { return *kernelSet; }
};

// Bytes of scratch memory that a worker needs for any task of the plan.
size_t countScratchBytes(const Plan& plan, const ops::KernelSet& kernels);

// Runs the task's kernel if the step's work includes it, then signals. `scratch` has countScratchBytes()
// bytes, 64-byte aligned.
void runTask(const CpuStep& step, const Task& task, std::byte* scratch);

}  // namespace sluice
