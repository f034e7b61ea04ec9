// makeDevice: the only function that knows every kind of device on which a rank's tasks can run.
#pragma once

#include <string_view>

#include "runtime/exec/device.h"

namespace sluice {

// Error: it is none of "cpu", "cuda" and "cuda:N".
Status checkDeviceName(std::string_view name);

// "cpu": a null maker, for CPU threads. "cuda" or "cuda:N": a GPU of compute capability 9.0, on which `ranks`
// ranks, threads of this process, are partitions of each launch. The maker is called once by each of them.
// Errors: another name; a GPU that is not there, or of another kind; a build without CUDA.
Expected<DeviceMaker> makeDevice(std::string_view name, int ranks);

}  // namespace sluice
