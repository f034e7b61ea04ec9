// Tensors of a program in memory of a GPU, and the copies between it and the host that a benchmark needs.
//
// GpuTensors is a value that shares its memory. One thread uses it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/gpu/gpu_backend.h"
#include "tools/bench/program_tensors.h"

namespace sluice::tools {

struct GpuTensor {
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  DeviceMemory memory;

  int64_t elements() const;
};

using GpuTensors = std::map<std::string, GpuTensor, std::less<>>;

// Zero-filled memory for a tensor.
Expected<GpuTensor> makeGpuTensor(GpuBackend& backend, DType type, std::vector<int64_t> shape);

// All inputs and outputs of a program of one rank, except its expert ids, which the host reads. Inputs are
// random numbers, of the scale of a trained layer, whose period is a prime number, so that no two rows or
// experts have the same; outputs are 0.
Expected<GpuTensors> makeGpuTensors(GpuBackend& backend, const TaskProgram& program, int64_t tokens,
                                    int64_t rows);

// |ours - theirs| / |theirs|, Frobenius; infinity if a number is not finite. Tensors of as many elements, of
// fp32 or bf16 each.
Expected<double> measureDifference(GpuBackend& backend, const GpuTensor& ours, const GpuTensor& theirs);

}  // namespace sluice::tools
