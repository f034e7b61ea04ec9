// Devices by name: what runs the tasks of a rank, for callers that let users choose.
#pragma once

#include <string>
#include <string_view>

#include "runtime/exec/device.h"
#include "runtime/gpu/gpu_backend.h"

namespace sluice {

// Error: it is none of "cpu", "cuda" and "cuda:N".
Status checkDeviceName(std::string_view name);

// "cpu": a null maker, for CPU threads. "cuda" or "cuda:N": a GPU of compute capability 9.0, on which `ranks`
// ranks, threads of this process, are partitions of each launch. The maker is called once by each of them.
// Errors: another name; a GPU that is not there, or of another kind; a build without CUDA.
Expected<DeviceMaker> findDevice(std::string_view name, int ranks);

struct GpuFacts {
  std::string name;
  int multiprocessors = 0;
  double clock = 0;                 // Hz, the most that a multiprocessor runs at
  int major = 9, minor = 0;         // compute capability
  int driver = 0, runtime = 0;      // CUDA's versions: what the driver supports, and what this build needs
  size_t bytes = 0, freeBytes = 0;  // of memory
};
// Whether the kernel runs on it. Error: the driver is too old, or it is a GPU of another kind.
Status checkGpu(const GpuFacts& facts);
// Of a GPU with such a name. Errors as those of findDevice().
Expected<GpuFacts> describeCuda(std::string_view name);

// The backends of such a GPU, of which each rank uses so many blocks; 0: all, shared evenly.
Expected<BackendMaker> findCuda(std::string_view name, int ranks, int blocks = 0);

}  // namespace sluice
