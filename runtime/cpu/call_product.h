// Tasks that multiply matrices, alone or with the activation that reads the product.
#pragma once

#include "runtime/cpu/cpu_step.h"

namespace sluice {

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
