// CpuStep: a step, with the kernels and packed weights that CPU threads add to it; and how its tasks run.
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

// Tasks that multiply matrices, alone or with the activation that reads the product (call_product.cc).
void callGmm(const CpuStep& step, const Task& task, std::byte* scratch);
void callGmmWeightGrad(const CpuStep& step, const Task& task, std::byte* scratch);
void callGmmActivation(const CpuStep& step, const Task& task, std::byte* scratch);
void callGmmActivationGrad(const CpuStep& step, const Task& task, std::byte* scratch);

// The types of a product or sum of products.
ops::ProductTypes findProductTypes(const TaskProgram& program, const Family& family);

// What is packed with the weight of a product: scales of groups along the sum, and their zeros.
ops::PackedScales makePackedScales(const TaskProgram& program, const Family& family);

// Whether the kernels have the products of all families, by the types of their operands; an error names a
// family that they have not, and what they multiply.
Status checkProducts(const TaskProgram& program, const ops::KernelSet& kernels);

// Bytes of scratch a task of the family needs for the calls above; `slotSize` rows at most. 0 for other ops.
size_t productScratchBytes(const TaskProgram& program, const ops::KernelSet& kernels, const Family& family,
                           int32_t slotSize);

}  // namespace sluice
