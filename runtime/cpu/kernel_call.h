// From a task of a step to the arguments of its kernel.
#pragma once

#include "runtime/exec/step.h"

namespace sluice {

// Runs the kernel of the task; signals nothing.
void callKernel(const Step& step, const Task& task, std::byte* scratch);

}  // namespace sluice
