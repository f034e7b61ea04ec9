// From a task of a step to the arguments of its kernel.
#pragma once

#include "runtime/cpu/cpu_step.h"

namespace sluice {

// Runs the kernel of the task; signals nothing.
void callKernel(const CpuStep& step, const Task& task, std::byte* scratch);

}  // namespace sluice
