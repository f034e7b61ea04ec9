// GPUs by name.
#pragma once

#include <string>
#include <string_view>

#include "runtime/gpu/gpu_backend.h"

namespace sluice {

// Whether it is "cuda" or "cuda:N".
bool isCudaName(std::string_view name);

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
// What the GPU of that name is. Errors: another name; a GPU that is not there, or on which the kernel does
// not run; a build without CUDA.
Expected<GpuFacts> describeCuda(std::string_view name);

// The backends of that GPU for `ranks` ranks, each of which uses so many blocks; 0: all, shared evenly.
// Errors: likewise.
Expected<BackendMaker> findCuda(std::string_view name, int ranks, int blocks = 0);

}  // namespace sluice
