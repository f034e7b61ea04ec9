// The command gpu_check, on a machine that main() gives.
#pragma once

#include <functional>
#include <string>

#include "tools/gpu_check/check_machine.h"

namespace sluice::tools {

// By the value of --device.
using MachineOf = std::function<CheckMachine(const std::string& device)>;

// Returns the exit status.
int runGpuCheck(int argc, char** argv, const MachineOf& machineOf);

}  // namespace sluice::tools
