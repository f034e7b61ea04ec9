// Derives the arguments of a kernel from a task of a step.
#pragma once

#include "runtime/cpu/cpu_step.h"

namespace sluice {

// Runs the kernel of the task, without its signals.
void callKernel(const CpuStep& step, const Task& task, std::byte* scratch);

}  // namespace sluice
